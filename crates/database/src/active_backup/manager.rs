//! Runs one member: prepares its file, runs ovsdb-server as a backup, and makes it the active one while it holds the Lease.

use std::time::{Duration, Instant};

use backoff::{Backoff, Retries};
use daemon::{Control, Daemon, Running};
use kubernetes::{Api, Elector, LeaseSettings};
use ovsdb::client::{Client, Config, Remote, Status, TableMonitor};
use remotes::{DatabaseAccess, RemoteUpdates, Service};
use telemetry::{Condition, Heartbeat, Shutdown, Telemetry};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::active_backup::files::{self, BootstrapInputs, Problem, Step};
use crate::active_backup::marker::Marker;
use crate::active_backup::metrics::Metrics;
use crate::active_backup::server::Server;
use crate::assess;
use crate::directory::{DataDirectory, DirectoryError};
use crate::error::DatabaseError;
use crate::file::FileState;
use crate::file_cache::FileCache;
use crate::image::Image;
use crate::manager_lock::ManagerLock;
use crate::node_listener::{NodeListener, NodeMetrics};
use crate::options::Options;
use crate::record::Record;
use crate::server_config;
use crate::store::{RecordStore, StoreError};

/// The Lease of the active server. Shorter than that of the controllers: without an active server nothing can be written.
const LEASE_DURATION: Duration = Duration::from_secs(10);
const RENEW_DEADLINE: Duration = Duration::from_secs(6);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Deadline of one API call; shorter than the renew deadline of the Lease.
const API_LIMIT: Duration = Duration::from_secs(3);
/// How long to wait before a failed step is retried.
const RETRY: Duration = Duration::from_secs(2);
/// ovsdb-server that neither replies nor uses CPU for this long is killed.
const HUNG_AFTER: Duration = Duration::from_secs(15);
/// A server that is silent for this long is not connected.
const INACTIVITY_LIMIT: Duration = Duration::from_secs(6);
/// Time for a stopping server to write what it has.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// A manager that completes no round within this time hangs: a round is a step of the preparation, a check of the running server,
/// or its end. Each takes some requests with limits of a few seconds, and the last one [`STOP_LIMIT`].
const ROUND_LIMIT: Duration = Duration::from_secs(60);
/// Delay between restarts of the server.
const RESTART: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// A server that ran for this long restarts without delay.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// How a turn of the server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// This member holds the Lease.
    Acquired,
    /// The server ended. It starts again with its data, and keeps the Lease as long as that is valid.
    Exited,
    /// The server must be killed and started again; another one may become active.
    Restart,
    /// Shutdown was requested.
    Shutdown,
}

/// Why a file is not ready.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("cannot write the marker of the database file: {0}")]
    Marker(std::io::Error),
    #[error(transparent)]
    Refused(#[from] Problem),
}

/// Runs the member until shutdown is requested. `service` is the one that clients follow.
pub async fn run(options: Options, service: &Service, telemetry: &Telemetry) -> Result<(), DatabaseError> {
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
    let _lock = ManagerLock::take(&options.run_directory, &format!("ovn{}_db", options.kind.short()))?;
    let lease = LeaseSettings {
        duration: LEASE_DURATION,
        renew_deadline: RENEW_DEADLINE,
        retry_period: RETRY_PERIOD,
        // The identity of the pod: a restarted container continues with its file, and nothing is lost.
        ..LeaseSettings::new(&options.namespace, format!("ovnkube-db-{}", options.kind.short()), &options.member)
    };
    let mut elector = Elector::new(&api, lease).map_err(DatabaseError::Lease)?;
    server_config::check_roles(&options, &Image::read(&options).await)?;
    let mut member = Member::new(options, service, &api, telemetry)?;
    let mut shutdown = telemetry.shutdown();
    let mut retries = Retries::without_jitter(RESTART);
    loop {
        tokio::select! {
            () = member.prepare() => {}
            () = shutdown.wait() => return Ok(()),
        }
        let began = Instant::now();
        let ended = member.serve(&mut elector, &mut shutdown).await;
        member.metrics.active.set(0);
        member.metrics.replicating.set(0);
        if ended == TurnEnd::Shutdown {
            return Ok(());
        }
        member.metrics.restarts.inc();
        if began.elapsed() > STABLE_AFTER {
            retries.reset();
        }
        tokio::select! {
            () = sleep(retries.next_delay()) => {}
            () = shutdown.wait() => return Ok(()),
        }
    }
}

/// One member: its file, its server's control socket, and what the API says about the active server.
pub(super) struct Member {
    pub(super) options: Options,
    pub(super) api: Api,
    pub(super) service: String,
    pub(super) store: RecordStore,
    pub(super) condition: Condition,
    pub(super) heartbeat: Heartbeat,
    pub(super) metrics: Metrics,
    /// The address of this server.
    pub(super) own: Remote,
    /// How the active server is found in the API.
    pub(super) access: DatabaseAccess,
    /// The active server when the API was asked, before the watch below names one.
    pub(super) published: Option<Remote>,
    /// Whether the API has confirmed what this server may rely on to become active.
    pub(super) confirmed: bool,
    /// The active server, as the watch of the API names it.
    pub(super) active: RemoteUpdates,
    pub(super) control: Server,
    /// The listener for nodes; none if they have no certificates of their own.
    pub(super) nodes: Option<NodeListener>,
    /// What is known about the file.
    pub(super) marker: Marker,
    /// The identity of the file.
    files: FileCache,
}

impl Member {
    fn new(options: Options, service: &Service, api: &Api, telemetry: &Telemetry) -> Result<Self, DatabaseError> {
        let address = options.client_address(&options.host);
        let own: Remote = address.parse().map_err(DatabaseError::Address)?;
        let service = Service { namespace: Some(options.namespace.clone()), ..service.clone() };
        let access = DatabaseAccess { remotes: vec![own.clone()], tls: None, service: Some(service.clone()) };
        let nodes = options.node_listener().map(|options| NodeListener::start(options, NodeMetrics::new(telemetry)));
        let nodes = nodes.transpose()?;
        let [active] = remotes::follow(api, [&access]);
        // A slow API must not delay a restart of the active server until its Lease expires.
        let api = api.with_timeout(API_LIMIT);
        Ok(Self {
            store: RecordStore::of_active_backup(api.clone(), options.namespace.clone()),
            access,
            published: None,
            confirmed: false,
            api,
            service: service.name,
            condition: telemetry.health().condition(options.kind.name()),
            heartbeat: telemetry.health().heartbeat("checks", ROUND_LIMIT),
            metrics: Metrics::new(options.kind, telemetry),
            own,
            active,
            control: Server::new(&options),
            nodes,
            marker: Marker { database_id: String::new(), complete: false },
            files: FileCache::default(),
            options,
        })
    }

    /// Repeats steps until the server can start.
    async fn prepare(&mut self) {
        let mut last = String::new();
        loop {
            self.heartbeat.beat();
            match self.step().await {
                Ok(true) => return,
                Ok(false) => last.clear(),
                Err(error) => {
                    let error = error.to_string();
                    if error != last {
                        tracing::error!(
                            database = self.options.kind.name(),
                            error,
                            "cannot prepare the database file, so ovsdb-server does not run; retrying every 2s"
                        );
                        self.condition.not_ready(format!("the server does not run: {error}"));
                        last = error;
                    }
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// One step; true if the server can start.
    async fn step(&mut self) -> Result<bool, PrepareError> {
        let (kind, directory) = (self.options.kind, self.options.data_directory.clone());
        let files = DataDirectory::new(&self.options);
        let path = files.path().display().to_string();
        let file = files.read(&mut self.files).await?;
        let marker = Marker::read(kind, &directory);
        let record = match self.store.read(kind).await {
            // A member with all data waits neither for the API nor for an administrator who repairs the record. It starts as a
            // backup; to become active it needs the API.
            Err(error)
                if file == FileState::Standalone(kind.schema().into())
                    && marker.as_ref().is_some_and(|marker| marker.complete) =>
            {
                tracing::warn!(database = kind.name(), %error, "cannot use the record in the API; starting with the complete local copy");
                self.marker = marker.unwrap_or_else(|| self.marker.clone());
                return Ok(true);
            }
            read => read?,
        };
        let (record, database) = (record.as_ref(), kind.name());
        let mark = |database_id: String, complete| {
            Marker { database_id, complete }.write(kind, &directory).map_err(PrepareError::Marker)
        };
        let new_id = || -> Result<String, PrepareError> {
            let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(PrepareError::Marker)?;
            Ok(id.trim().to_owned())
        };
        match files::next(&BootstrapInputs { kind, path: &path, file: &file, marker: marker.as_ref(), record }) {
            Step::Create => {
                // Before the file: one with the marker of an earlier file would count as complete.
                mark(new_id()?, true)?;
                files.create_standalone(true).await?;
                tracing::info!(database, file = path, "created the database");
            }
            Step::Mark => mark(new_id()?, true)?,
            Step::Publish => {
                let id = marker.map(|marker| marker.database_id).unwrap_or_default();
                if self.store.create(kind, &Record::new(id, &self.options.member)).await? {
                    tracing::info!(database, "recorded the database in ConfigMap ovnkube-db");
                }
            }
            Step::CreateEmpty => {
                mark(record.map(|record| record.cluster_id.clone()).unwrap_or_default(), false)?;
                files.create_standalone(false).await?;
            }
            Step::SetAside => {
                let kept = files.set_aside_as("replaced")?;
                tracing::warn!(database, kept = %kept.display(), "put the file aside: it is not the recorded database");
            }
            Step::Start => {
                if let Some(marker) = marker {
                    self.marker = marker;
                }
                return Ok(true);
            }
            Step::Refuse(problem) => return Err(problem.into()),
        }
        Ok(false)
    }

    /// Runs the server, as a backup first, until it ends.
    async fn serve(&mut self, elector: &mut Elector, shutdown: &mut Shutdown) -> TurnEnd {
        let kind = self.options.kind;
        let arguments = match self.control.start_arguments() {
            Ok(arguments) => arguments,
            Err(error) => {
                self.condition.not_ready(format!("cannot start ovsdb-server: {error}; retrying"));
                return TurnEnd::Restart;
            }
        };
        let daemon = Daemon {
            name: "ovsdb-server",
            program: "ovsdb-server".into(),
            arguments,
            control: Control::Path(kind.control_socket(&self.options.run_directory)),
            hung_after: HUNG_AFTER,
        };
        let mut process = match daemon.spawn() {
            Ok(process) => process,
            Err(error) => {
                self.condition.not_ready(format!("cannot start ovsdb-server: {error}; retrying"));
                return TurnEnd::Restart;
            }
        };
        tracing::info!(database = kind.name(), pid = process.process(), "ovsdb-server started as a backup");
        self.condition.not_ready("ovsdb-server is starting");
        self.confirmed = false;
        let local = self.local_client();
        let mut ended = self.back_up(&mut process, &local, elector, shutdown).await;
        if ended == TurnEnd::Acquired {
            ended = self.lead(&mut process, &local, elector, shutdown).await;
        }
        if let Some(nodes) = &self.nodes {
            nodes.close();
        }
        match ended {
            TurnEnd::Shutdown => process.stop(STOP_LIMIT).await,
            // Another server may be active by now: this one accepts no more writes.
            _ => process.kill_now().await,
        }
        // Only now: no other server may become active while this one might accept writes.
        if ended != TurnEnd::Exited
            && elector.is_held()
            && let Err(error) = elector.release().await
        {
            tracing::warn!(database = kind.name(), %error, "cannot release the Lease; the next server waits until it expires");
        }
        ended
    }

    /// A client of this server alone, which knows whether it answers, and whether it has the first row.
    fn local_client(&self) -> Client {
        let socket = self.options.kind.socket(&self.options.run_directory);
        let mut config = Config::new(vec![Remote::Unix(socket)], self.options.kind.schema());
        config.probe_interval = INACTIVITY_LIMIT;
        config.backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
        Client::start(config.monitor(TableMonitor::new(self.options.kind.global_table()).columns(&["options"])))
    }

    /// Whether the server has data: every database has this row from its creation on.
    pub(super) fn has_data(&self, local: &Client) -> bool {
        let snapshot = local.snapshot();
        let connected = local.status().borrow().connected;
        connected && snapshot.table(self.options.kind.global_table()).is_some_and(|table| table.iter().next().is_some())
    }

    /// Logs why the server ended.
    pub(super) fn exited(&self, process: &Running, exit: &daemon::Exit) -> TurnEnd {
        let error = assess::exit(&exit.to_string(), &process.warnings().recent()).0;
        tracing::error!(database = self.options.kind.name(), error, "ovsdb-server ended; restarting it");
        self.condition.not_ready(format!("{error}; restarting"));
        TurnEnd::Exited
    }
}

/// Waits while a server is connected; returns when it was not for `limit`.
pub(super) async fn until_silent(mut status: watch::Receiver<Status>, limit: Duration) {
    loop {
        if status.wait_for(|status| !status.connected).await.is_err() {
            return std::future::pending().await;
        }
        tokio::select! {
            Ok(_) = status.wait_for(|status| status.connected) => {}
            () = sleep(limit) => return,
        }
    }
}
