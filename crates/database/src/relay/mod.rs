//! A relay of the southbound database: a server near the nodes that has a copy, and forwards writes to a member.
//!
//! ```text
//!   ovn-controllers ──▶ ovsdb-server relay:OVN_Southbound ──▶ one member of the southbound database
//!                          ▲ configuration file, reload  │ a write without effect, every 2 s
//!                        Relay ◀────────────────────────┘ ──▶ readiness, metrics
//! ```
//!
//! ovsdb-server itself calls a relay connected for 30 s after it lost its upstream. The manager therefore sends a write
//! that changes nothing: a relay answers it only if it has a complete copy and its upstream executed the write. A relay
//! keeps nothing on disk, so restarting it is always safe.

mod config;
mod metrics;
mod upstream;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use backoff::{Backoff, Retries};
use daemon::{Control, Daemon};
use kubernetes::{Api, ApiError, ConfigError};
use ovsdb::client::{CallError, Client, Config, Endpoint, Remote, TlsFiles};
use ovsdb::operation::Condition as RowCondition;
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;
use remotes::DatabaseAccess;
use telemetry::{Condition, Heartbeat, Telemetry};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::assess;
use crate::control::{CommandError, command};
use crate::error::DatabaseError;
use crate::inspect::ask_all;
use crate::kind::Kind;
use crate::manager_lock::ManagerLock;
use crate::node_listener::{ListenerProblem, NodeListener, NodeMetrics};
use crate::options::NodeAccess;
use crate::process::listens;
use metrics::RelayMetrics;
use upstream::{Failure, RelayAction};

/// The relayed database. A relay of the northbound database would have no clients: the controller needs the leader.
const KIND: Kind = Kind::Southbound;
/// Interval of the write without effect.
const PROBE_PERIOD: Duration = Duration::from_secs(2);
/// A relay that sends its whole copy to many nodes replies late.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// The members are read from the API once in this many probes.
const MEMBERS_PERIOD: u32 = 5;
/// The write without effect waits for such a read: readiness must not depend on an API server that hangs.
const API_LIMIT: Duration = Duration::from_secs(3);
/// ovsdb-server that neither replies nor uses CPU for this long is killed.
const HUNG_AFTER: Duration = Duration::from_secs(10);
/// A relay that does not connect for this long although a member works is restarted. ovsdb-server remembers the raft index
/// of its upstream and refuses a cluster that was rebuilt for ever.
const STUCK_AFTER: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// A manager that completes no round within this time hangs. Each of its requests has a limit: a round takes half of this at most,
/// with a stop of the server and the delay before its restart.
const ROUND_LIMIT: Duration = Duration::from_secs(
    2 * (PROBE_PERIOD.as_secs() + API_LIMIT.as_secs() + 4 * PROBE_LIMIT.as_secs() + STOP_LIMIT.as_secs() + 10),
);
/// Delay between restarts of the server.
const RESTART: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// A server that ran for this long restarts without delay.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Options of `ovnkube db relay`.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// Where the sockets and the server's configuration file are.
    pub run_directory: PathBuf,
    /// The address to listen on for clients, e.g. `0.0.0.0` or `::`.
    pub listen: String,
    /// TCP port for clients.
    pub port: u16,
    /// The files of mutual TLS, for clients and upstream; none for plain TCP.
    pub tls: Option<TlsFiles>,
    /// The members of the database; with a Service, until its endpoints are known.
    pub upstreams: Vec<Remote>,
    /// The Service whose endpoints are the members.
    pub service: Option<UpstreamService>,
    /// Certificates of nodes, with TLS only; none if nodes have the control plane's, or for [`RelayOptions::role`].
    pub nodes: Option<NodeAccess>,
    /// The RBAC role of clients, e.g. `ovn-controller`; none to allow them everything.
    pub role: Option<String>,
}

/// A Service whose endpoints are the members of the database.
#[derive(Debug, Clone)]
pub struct UpstreamService {
    /// The Service, with the ports of the members; the configured servers are those of [`RelayOptions::upstreams`].
    pub access: DatabaseAccess,
    /// The members' port; none for that of their endpoints.
    pub port: Option<u16>,
    /// The kubeconfig; none for that of the environment, or for the in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
}

impl UpstreamService {
    /// The API server that names its endpoints.
    async fn api(&self) -> Result<Api, ConfigError> {
        Ok(Api::from_kubeconfig(self.kubeconfig.as_deref(), None).await?.with_timeout(API_LIMIT))
    }

    /// The members that the API names now; none without any.
    async fn members(&self, api: &Api) -> Result<Option<Vec<Remote>>, ApiError> {
        let Some(members) = remotes::published(api, &self.access).await? else { return Ok(None) };
        Ok(Some(members.into_iter().map(|member| at_port(member, self.port)).collect()))
    }

    fn name(&self) -> &str {
        self.access.service.as_ref().map_or("", |service| &service.name)
    }
}

/// The same server at another port, if there is one.
fn at_port(remote: Remote, port: Option<u16>) -> Remote {
    match (remote, port) {
        (Remote::Ssl(endpoint), Some(port)) => Remote::Ssl(Endpoint { port, ..endpoint }),
        (Remote::Tcp(endpoint), Some(port)) => Remote::Tcp(Endpoint { port, ..endpoint }),
        (remote, _) => remote,
    }
}

/// Runs a relay until shutdown is requested.
pub async fn run_relay(options: RelayOptions, telemetry: &Telemetry) -> Result<(), DatabaseError> {
    let _lock = ManagerLock::take(&options.run_directory, "ovnsb_relay")?;
    let members = match &options.service {
        Some(service) => Some(service.api().await?),
        None => None,
    };
    let listener = options.node_listener().map(|options| NodeListener::start(options, NodeMetrics::new(telemetry)));
    let mut relay = Relay {
        listener: listener.transpose()?,
        condition: telemetry.health().condition("relay"),
        heartbeat: telemetry.health().heartbeat("checks", ROUND_LIMIT),
        metrics: RelayMetrics::new(telemetry),
        members,
        reported: Reported::Nothing,
        options,
    };
    let shutdown = telemetry.shutdown();
    let mut retries = Retries::without_jitter(RESTART);
    loop {
        relay.heartbeat.beat();
        let began = Instant::now();
        let served = relay.serve(shutdown.wait()).await;
        if served {
            return Ok(());
        }
        relay.metrics.restarted();
        if began.elapsed() > STABLE_AFTER {
            retries.reset();
        }
        tokio::select! {
            () = sleep(retries.next_delay()) => {}
            () = shutdown.wait() => return Ok(()),
        }
    }
}

/// The state of the relay, as logged last.
#[derive(Debug, PartialEq, Eq)]
enum Reported {
    Nothing,
    Ready,
    NotReady(String),
}

struct Relay {
    options: RelayOptions,
    condition: Condition,
    heartbeat: Heartbeat,
    metrics: RelayMetrics,
    /// Where the members are recorded; none for a fixed list.
    members: Option<Api>,
    /// The listener for nodes; none if they have no certificates of their own.
    listener: Option<NodeListener>,
    /// What was logged last.
    reported: Reported,
}

impl Relay {
    /// Runs the server until it ends or has to be restarted (false), or shutdown is requested (true).
    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> bool {
        let ended = self.serve_until_end(shutdown).await;
        if let Some(listener) = &self.listener {
            listener.close();
        }
        ended
    }

    async fn serve_until_end(&mut self, shutdown: impl Future<Output = ()>) -> bool {
        if let Err(error) = write_configuration(&self.options) {
            self.show_down(format!("cannot write {}: {error}; retrying", self.options.configuration_file().display()));
            return false;
        }
        let daemon = Daemon {
            name: "ovsdb-server",
            program: "ovsdb-server".into(),
            arguments: self.options.server_arguments(),
            control: Control::Path(self.options.control_socket()),
            hung_after: HUNG_AFTER,
        };
        let mut server = match daemon.spawn() {
            Ok(server) => server,
            Err(error) => {
                self.show_down(format!(
                    "cannot start ovsdb-server: {error}; retrying; hint: the image must contain it"
                ));
                return false;
            }
        };
        tracing::info!(pid = server.process(), upstreams = self.options.source(), "relay started");
        self.condition.not_ready("ovsdb-server is starting");
        let process = server.process();
        if let Some(listener) = &self.listener {
            listener.open(process);
        }
        let exit = tokio::select! {
            exit = server.wait() => Some(exit),
            () = shutdown => None,
            () = self.observe(process) => {
                // Its own report says why.
                server.stop(STOP_LIMIT).await;
                return false;
            }
        };
        match exit {
            Some(exit) => {
                let why = assess::exit(&exit.to_string(), &server.warnings().recent()).0;
                self.show_down(format!("{why}; restarting"));
                false
            }
            None => {
                tracing::info!("stopping the relay");
                server.stop(STOP_LIMIT).await;
                true
            }
        }
    }

    /// Watches the relay and its upstreams; returns if the server has to be restarted.
    async fn observe(&mut self, process: u32) {
        let client = self.local_client();
        let mut ticks = interval(PROBE_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut disconnected = Instant::now();
        for tick in 0_u32.. {
            ticks.tick().await;
            self.heartbeat.beat();
            if tick.is_multiple_of(MEMBERS_PERIOD) {
                self.follow_members().await;
                self.metrics.set_sessions(sessions(&self.options).await);
            }
            match forwards(&client).await {
                Ok(()) => {
                    disconnected = Instant::now();
                    // Nodes cannot use a relay that listens nowhere.
                    let problem = self.listener.as_ref().and_then(NodeListener::problem);
                    if let Some(ListenerProblem::Port(error) | ListenerProblem::Files(error)) = problem {
                        self.show_down(format!("the port for nodes, {}, is closed: {error}", self.options.port));
                    } else if listens(process, self.options.server_port()) == Some(false) {
                        let (listen, port) = (&self.options.listen, self.options.server_port());
                        let why = "another process has the port, or this host does not have the address";
                        let remedy = "give another --listen or --port";
                        self.show_down(format!("the relay does not listen at {listen}, port {port}: {why}; {remedy}"));
                    } else {
                        self.show_ready();
                    }
                }
                Err(failure) => {
                    let members = ask_all(KIND, &self.options.upstreams, self.options.tls.as_ref()).await;
                    let action = upstream::assess(&members, &failure, disconnected.elapsed(), STUCK_AFTER);
                    match action {
                        RelayAction::Wait(why) => self.show_down(why),
                        RelayAction::Restart(why) => {
                            self.show_down(why);
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Asks the relay whether it is complete.
    fn local_client(&self) -> Client {
        let mut config = Config::new(vec![Remote::Unix(self.options.socket())], KIND.schema());
        config.leader_only = false;
        config.connect_timeout = PROBE_LIMIT;
        config.backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        Client::start(config)
    }

    /// Reloads the running server if the list of members changed. Its connections stay.
    async fn follow_members(&mut self) {
        let (Some(api), Some(service)) = (&self.members, &self.options.service) else { return };
        let upstreams = match service.members(api).await {
            Ok(Some(upstreams)) if upstreams != self.options.upstreams => upstreams,
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(%error, service = service.name(), "cannot read the members; keeping the known ones");
                return;
            }
        };
        let changed = RelayOptions { upstreams, ..self.options.clone() };
        let upstreams = changed.source();
        match reload(&changed).await {
            Ok(()) => {
                tracing::info!(upstreams, "the members of the southbound database changed; reloaded the relay");
                self.options = changed;
            }
            Err(error) => {
                tracing::warn!(%error, upstreams, "cannot update the relay's list of members; retrying in 10s");
            }
        }
    }

    fn show_ready(&mut self) {
        self.condition.ready();
        self.metrics.set_connected(true);
        if std::mem::replace(&mut self.reported, Reported::Ready) != Reported::Ready {
            tracing::info!("the relay is ready: it has a complete copy, and its upstream executes writes");
        }
    }

    fn show_down(&mut self, why: String) {
        self.condition.not_ready(why.clone());
        self.metrics.set_connected(false);
        let report = Reported::NotReady(why);
        if let Reported::NotReady(error) = &report
            && self.reported != report
        {
            tracing::warn!(error, "relay not ready; checking again every 2s");
        }
        self.reported = report;
    }
}

fn write_configuration(options: &RelayOptions) -> std::io::Result<()> {
    std::fs::write(options.configuration_file(), options.configuration().to_string())
}

/// Writes the configuration and has the running server read it.
async fn reload(options: &RelayOptions) -> Result<(), ReloadError> {
    write_configuration(options).map_err(|error| ReloadError::Write(options.configuration_file(), error))?;
    command(&options.control_socket(), "ovsdb-server/reload", &[], PROBE_LIMIT).await?;
    Ok(())
}

/// Why the running server has not got a new configuration.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error("cannot write {}: {}", .0.display(), .1)]
    Write(PathBuf, std::io::Error),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Sends a write that changes nothing, which a relay forwards to its upstream.
async fn forwards(client: &Client) -> Result<(), Failure> {
    let mut write = Transaction::new();
    let nothing = vec![RowCondition::uuid(Uuid::default())];
    write.update(KIND.global_table(), nothing, Row::new().map("external_ids", []));
    match client.transact_within(&write, PROBE_LIMIT).await {
        Ok(_) => Ok(()),
        Err(CallError::Refused(refusal)) if refusal.error.error == "permission error" => {
            Err(Failure::Denied(refusal.to_string()))
        }
        Err(error) => Err(Failure::NoAnswer(error.to_string())),
    }
}

/// Number of clients; none if the server does not reply.
async fn sessions(options: &RelayOptions) -> Option<i64> {
    config::sessions(&command(&options.control_socket(), "memory/show", &[], PROBE_LIMIT).await.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_from_an_api_server_that_hangs_ends_at_its_limit() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let kubeconfig = std::env::temp_dir().join(format!("relay-kubeconfig-{}", std::process::id()));
        let server = format!("http://{}", listener.local_addr().unwrap());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\n\
             users: [{{name: c, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let service = remotes::Service::parse("ovn-kubernetes/ovnkube-db", "south").unwrap();
        let access = DatabaseAccess { remotes: Vec::new(), tls: None, service };
        let service = UpstreamService { access, port: None, kubeconfig: Some(kubeconfig.clone()) };
        let api = service.api().await.unwrap();
        let error = service.members(&api).await.unwrap_err();
        std::fs::remove_file(kubeconfig).unwrap();
        assert!(matches!(error, ApiError::Timeout { after } if after == API_LIMIT), "{error}");
    }

    #[test]
    fn a_given_port_replaces_that_of_the_endpoints() {
        let remote: Remote = "ssl:192.0.2.1:6646".parse().unwrap();
        assert_eq!(at_port(remote.clone(), None).to_string(), "ssl:192.0.2.1:6646");
        assert_eq!(at_port(remote, Some(7)).to_string(), "ssl:192.0.2.1:7");
    }
}
