//! Runs one raft member: prepares its file, runs ovsdb-server, and stops it gracefully. What is checked meanwhile: [`crate::checks`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use backoff::{Backoff, Retries};
use daemon::{Control, Daemon, Exit, Running, Warnings};
use kubernetes::{Api, ObjectReference};
use ovsdb::client::{Client, Config, Remote, Status};
use telemetry::{Condition, Heartbeat, Shutdown, Telemetry};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::assess;
use crate::checks::ROUND_LIMIT;
use crate::clock::ClockWatch;
use crate::disk_check::DiskCheck;
use crate::error::DatabaseError;
use crate::file_cache::FileCache;
use crate::finding::{Finding, FindingKind, Findings, Source};
use crate::image::Image;
use crate::leadership::Handover;
use crate::maintenance::{Debounced, MemberList, inactivity_probe};
use crate::manager_lock::ManagerLock;
use crate::manager_status::ManagerStatus;
use crate::metrics::Metrics;
use crate::node_listener::{NodeListener, NodeMetrics};
use crate::options::Options;
use crate::prepare::{self, PrepareError};
use crate::process::ProcessWatch;
use crate::report::Reporter;
use crate::server_config;
use crate::store::RecordStore;
use crate::verify::Verified;
use crate::version::MemberVersion;

/// Interval of checks of the cluster.
const STATUS_PERIOD: Duration = Duration::from_secs(5);
/// How long to wait before a failed step is retried.
const PREPARE_RETRY: Duration = Duration::from_secs(2);
/// A leader hands over and writes its last entries.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// ovsdb-server that neither replies nor uses CPU for this long is killed.
const HUNG_AFTER: Duration = Duration::from_secs(15);
/// Limit of one call of the API: checks wait for several, and a stop waits for the checks.
const API_LIMIT: Duration = Duration::from_secs(3);
/// Delay between restarts of the server.
const RESTART: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// A server that ran for this long did not fail to start: it restarts without delay.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// The size of the cluster must be the same in so many checks, 30 s apart, before election timer and probes follow it.
const DEBOUNCE_CHECKS: u32 = 4;

/// Runs the member until shutdown is requested.
pub async fn run(options: Options, telemetry: &Telemetry, pod: Option<ObjectReference>) -> Result<(), DatabaseError> {
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
    let _lock = ManagerLock::take(&options.run_directory, &format!("ovn{}_db", options.kind.short()))?;
    let image = Image::read(&options).await;
    server_config::check_roles(&options, &image)?;
    let listener = options.node_listener().map(|options| NodeListener::start(options, NodeMetrics::new(telemetry)));
    let mut manager = Manager {
        store: RecordStore::new(api.with_timeout(API_LIMIT), options.namespace.clone()),
        condition: telemetry.health().condition(options.kind.name()),
        heartbeat: telemetry.health().heartbeat("checks", ROUND_LIMIT),
        metrics: Metrics::new(options.kind, telemetry),
        reporter: Reporter::new(&api, &options, telemetry.status_page().clone(), pod),
        findings: Findings::default(),
        files: FileCache::default(),
        verified: Verified::default(),
        data_lock: None,
        image,
        listener: listener.transpose()?,
        clock: ClockWatch::new(Instant::now(), SystemTime::now()),
        disk: DiskCheck::default(),
        nodes: Debounced::new(DEBOUNCE_CHECKS),
        probe: inactivity_probe(0),
        members: MemberList::default(),
        absent_checks: 0,
        versions: BTreeMap::new(),
        convertible_checks: 0,
        handover: Handover::new(options.kind),
        status: ManagerStatus {
            member: options.member.clone(),
            host: options.host.clone(),
            status_port: options.status_port,
            raft_address: options.address(),
            raft_port: options.raft_port,
            control_port: options.control_port(),
            ..ManagerStatus::default()
        },
        options,
    };
    manager.set_image();
    let mut shutdown = telemetry.shutdown();
    let mut retries = Retries::without_jitter(RESTART);
    loop {
        let prepared = tokio::select! {
            () = manager.prepare() => true,
            () = shutdown.wait() => false,
        };
        if !prepared {
            return Ok(());
        }
        let began = Instant::now();
        let ended = manager.serve(&mut shutdown).await;
        if ended == ServerEnd::Shutdown {
            return Ok(());
        }
        manager.metrics.restarted();
        // Stopping it was a decision of this manager, and no failure of the server.
        if ended == ServerEnd::Replaced || began.elapsed() > STABLE_AFTER {
            retries.reset();
        }
        tokio::select! {
            () = sleep(retries.next_delay()) => {}
            () = shutdown.wait() => return Ok(()),
        }
    }
}

/// Why a server runs no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerEnd {
    /// The manager stops.
    Shutdown,
    /// It has to start with a file of another cluster.
    Replaced,
    /// It exited, or did not start.
    Failed,
}

/// What a check of the cluster leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    /// The server failed, and can work again.
    Restart,
    /// The file has to be replaced by one of another cluster.
    Rejoin,
}

/// What the checks of a running server need.
pub(crate) struct Server {
    /// Process ID, for memory and CPU times below `/proc`.
    pub(crate) id: u32,
    pub(crate) control: PathBuf,
    pub(crate) warnings: Warnings,
    pub(crate) client: Client,
    pub(crate) process: ProcessWatch,
    /// Number of checks so far.
    pub(crate) checks: u32,
    /// When it last replied at its control socket.
    pub(crate) replied: Instant,
    /// Whether it returns freed memory to the host.
    pub(crate) trims_memory: bool,
}

/// What ended a round of checks.
enum Round {
    Done(Next),
    Exited(Exit),
    Shutdown,
}

pub(crate) struct Manager {
    pub(crate) options: Options,
    pub(crate) store: RecordStore,
    condition: Condition,
    heartbeat: Heartbeat,
    pub(crate) metrics: Metrics,
    reporter: Reporter,
    pub(crate) findings: Findings,
    /// The identities of the files in the data directory.
    pub(crate) files: FileCache,
    /// The checksums of the file.
    verified: Verified,
    /// Held while this manager uses the data directory; none until it could be taken.
    data_lock: Option<ManagerLock>,
    pub(crate) image: Image,
    /// The listener for nodes; none if they have no certificates of their own.
    pub(crate) listener: Option<NodeListener>,
    pub(crate) clock: ClockWatch,
    pub(crate) disk: DiskCheck,
    /// Number of nodes, as classes of equal settings: the smallest number of its class.
    pub(crate) nodes: Debounced<usize>,
    /// The server's inactivity probe of its clients, in milliseconds.
    pub(crate) probe: u64,
    /// Raft addresses of all members; empty until known.
    pub(crate) members: MemberList,
    /// Checks in a row in which the list lacked this member.
    pub(crate) absent_checks: u32,
    /// What the members recorded about their images.
    pub(crate) versions: BTreeMap<String, MemberVersion>,
    /// Checks in a row in which the schema could be converted.
    pub(crate) convertible_checks: u32,
    pub(crate) handover: Handover,
    pub(crate) status: ManagerStatus,
}

impl Manager {
    fn set_image(&mut self) {
        self.status.server_version = self.image.server.map(|version| version.to_string());
        self.status.image_schema = self.image.schema.map(|version| version.to_string());
    }

    /// Repeats steps until the server can start.
    async fn prepare(&mut self) {
        let mut last = String::new();
        loop {
            self.heartbeat.beat();
            match self.prepare_step().await {
                Ok(true) => return,
                Ok(false) => last.clear(),
                Err(error) => {
                    let text = error.to_string();
                    if text != last {
                        self.show_down(&text, error.finding());
                        self.check_disk(None).await;
                        last = text;
                    }
                    self.check_clock();
                    self.publish();
                    // The API answers again, an administrator moves a file, or another member starts: all of it is seen only
                    // by trying again.
                    sleep(PREPARE_RETRY).await;
                }
            }
        }
    }

    async fn prepare_step(&mut self) -> Result<bool, PrepareError> {
        if self.data_lock.is_none() {
            // Two pods may have the same volume, and run directories of their own.
            let server = format!(".ovn{}_db", self.options.kind.short());
            self.data_lock = Some(ManagerLock::take(&self.options.data_directory, &server)?);
        }
        prepare::step(&self.options, &self.store, &mut self.files, &mut self.verified).await
    }

    /// Reports that no server runs, and why.
    fn show_down(&mut self, why: &str, cause: Option<Finding>) {
        self.condition.not_ready(why);
        self.metrics.clear_status();
        self.status.process = None;
        self.status.clear_server();
        self.findings.server_ended();
        let not_running = Finding::new(FindingKind::NotRunning, format!("the server does not run: {why}"));
        self.findings.set(Source::Start, std::iter::once(not_running).chain(cause).collect());
        self.publish();
    }

    /// Runs the server until it ends. Nodes have their port meanwhile.
    async fn serve(&mut self, shutdown: &mut Shutdown) -> ServerEnd {
        let ended = self.serve_until_end(shutdown).await;
        if let Some(listener) = &self.listener {
            listener.close();
        }
        ended
    }

    async fn serve_until_end(&mut self, shutdown: &mut Shutdown) -> ServerEnd {
        let kind = self.options.kind;
        let configuration = self.write_server_config();
        if self.listener.is_some() && configuration.is_none() {
            self.show_down("its configuration file, which gives nodes their role, cannot be written; retrying", None);
            return ServerEnd::Failed;
        }
        let daemon = Daemon {
            name: "ovsdb-server",
            program: "ovsdb-server".into(),
            arguments: self.options.server_arguments(configuration.as_deref()),
            control: Control::Path(kind.control_socket(&self.options.run_directory)),
            hung_after: HUNG_AFTER,
        };
        let mut running = match daemon.spawn() {
            Ok(running) => running,
            Err(error) => {
                let why = format!("cannot start ovsdb-server: {error}; retrying; hint: the image must contain it");
                self.show_down(&why, None);
                return ServerEnd::Failed;
            }
        };
        tracing::info!(database = kind.name(), pid = running.process(), "ovsdb-server started");
        self.status.process = Some(running.process());
        if let Some(listener) = &self.listener {
            listener.open(running.process());
        }
        let mut server = Server {
            id: running.process(),
            control: running.control().to_owned(),
            warnings: running.warnings(),
            client: self.local_client(),
            process: ProcessWatch::new(running.process()),
            checks: 0,
            replied: Instant::now(),
            trims_memory: false,
        };
        let mut connection = server.client.status();
        let mut ticks = interval(STATUS_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.condition.not_ready("ovsdb-server is starting");
        loop {
            tokio::select! {
                exit = running.wait() => return self.exited(&exit, &server.warnings).await,
                () = shutdown.wait() => {
                    self.stop(&mut running).await;
                    return ServerEnd::Shutdown;
                }
                changed = connection.changed() => {
                    if changed.is_err() {
                        return ServerEnd::Failed;
                    }
                    self.show_readiness(&connection);
                }
                _ = ticks.tick() => {
                    let next = match self.watched_check(&mut server, &mut running, &mut connection, shutdown).await {
                        Round::Done(next) => next,
                        Round::Exited(exit) => return self.exited(&exit, &server.warnings).await,
                        Round::Shutdown => continue,
                    };
                    self.heartbeat.beat();
                    self.publish();
                    self.show_readiness(&connection);
                    if next != Next::GoOn {
                        self.stop(&mut running).await;
                        return if next == Next::Rejoin { ServerEnd::Replaced } else { ServerEnd::Failed };
                    }
                }
            }
        }
    }

    /// One round of checks. It may wait for a slow API or name server; an exit of the server, its loss of the quorum and a stop
    /// must not. What a check does can be repeated.
    async fn watched_check(
        &mut self,
        server: &mut Server,
        running: &mut Running,
        connection: &mut watch::Receiver<Status>,
        shutdown: &mut Shutdown,
    ) -> Round {
        let condition = self.condition.clone();
        let mut check = std::pin::pin!(self.check(server));
        loop {
            tokio::select! {
                next = &mut check => return Round::Done(next),
                exit = running.wait() => return Round::Exited(exit),
                () = shutdown.wait() => return Round::Shutdown,
                Ok(()) = connection.changed() => {
                    let status = connection.borrow_and_update();
                    if !status.connected {
                        condition.not_ready(without_quorum(&status));
                    }
                }
            }
        }
    }

    /// Reports that the server exited.
    async fn exited(&mut self, exit: &Exit, warnings: &Warnings) -> ServerEnd {
        let (why, cause) = assess::exit(&exit.to_string(), &warnings.recent());
        self.show_down(&format!("{why}; restarting"), cause);
        self.check_disk(None).await;
        self.publish();
        ServerEnd::Failed
    }

    /// Writes the configuration file of the server; none if the server reads none, or it cannot be written.
    pub(crate) fn write_server_config(&self) -> Option<PathBuf> {
        let path = server_config::path(&self.options, &self.image)?;
        match server_config::write(&path, &self.options, self.probe) {
            Ok(()) => Some(path),
            Err(error) => {
                let database = self.options.kind.name();
                let next = if self.listener.is_some() { "retrying" } else { "starting the server without it" };
                tracing::warn!(database, %error, "cannot write {}; {next}", path.display());
                None
            }
        }
    }

    /// A client of this server alone. It is connected while the server is in contact with a quorum.
    fn local_client(&self) -> Client {
        let socket = self.options.kind.socket(&self.options.run_directory);
        let mut config = Config::new(vec![Remote::Unix(socket)], self.options.kind.schema());
        config.leader_only = false;
        config.probe_interval = Duration::from_secs(5);
        config.backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
        Client::start(config)
    }

    fn show_readiness(&self, connection: &watch::Receiver<Status>) {
        let status = connection.borrow();
        // Others cannot use a server that listens nowhere, and must not rely on one without a file.
        let unusable = |finding: &&Finding| {
            matches!(finding.kind, FindingKind::PortInUse | FindingKind::NodesShutOut | FindingKind::DamagedFile)
        };
        if !status.connected {
            self.condition.not_ready(without_quorum(&status));
        } else if let Some(finding) = self.findings.all().find(unusable) {
            self.condition.not_ready(&finding.message);
        } else {
            self.condition.ready();
        }
    }

    async fn stop(&self, server: &mut Running) {
        // A leader transfers its leadership before it exits.
        tracing::info!(database = self.options.kind.name(), "stopping ovsdb-server");
        server.stop(STOP_LIMIT).await;
    }

    /// Reports what is new and what is over.
    pub(crate) fn publish(&mut self) {
        self.reporter.publish(&mut self.findings, &self.metrics, &mut self.status);
    }
}

/// Why a server is not ready although it runs.
fn without_quorum(status: &Status) -> String {
    let why = status.last_error.as_deref().unwrap_or("connecting");
    format!("the server is not in contact with a quorum: {why}")
}
