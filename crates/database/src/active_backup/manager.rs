//! Runs one member: prepares its file, runs ovsdb-server as a backup, and makes it the active one while it holds the Lease.

use std::time::{Duration, Instant};

use backoff::{Backoff, Retries};
use daemon::{Control, Daemon, Running};
use kubernetes::{Api, Elector, LeaseSettings, ObjectReference};
use ovsdb::client::{Client, Config, Remote, Status, TableMonitor};
use remotes::{DatabaseAccess, RemoteUpdates, Service};
use telemetry::{Condition, Heartbeat, Shutdown, Telemetry};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::active_backup::files::{self, BootstrapInputs, Problem, Step};
use crate::active_backup::marker::Marker;
use crate::active_backup::metrics::Metrics;
use crate::active_backup::server::Server;
use crate::active_backup::supervision::{MemberState, Role, RunningServer, Supervisor};
use crate::assess;
use crate::directory::{DataDirectory, DirectoryError};
use crate::error::DatabaseError;
use crate::file::FileState;
use crate::file_cache::FileCache;
use crate::finding::{Finding, FindingKind};
use crate::image::Image;
use crate::manager_lock::ManagerLock;
use crate::metrics;
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
    /// Another manager has the data directory, or it cannot be written.
    #[error(transparent)]
    Lock(DatabaseError),
    #[error(transparent)]
    Refused(#[from] Problem),
}

impl PrepareError {
    /// The finding besides `NotRunning`, if the cause has a name.
    fn finding(&self) -> Option<Finding> {
        let kind = match self {
            Self::Refused(Problem::Damaged { .. }) => FindingKind::DamagedFile,
            Self::Refused(Problem::OtherDatabase { .. }) => FindingKind::WrongDatabase,
            Self::Store(StoreError::Record(_)) => FindingKind::BadRecord,
            Self::Lock(DatabaseError::AlreadyManaged(_)) => FindingKind::VolumeInUse,
            Self::Directory(_) | Self::Marker(_) | Self::Lock(_) => {
                return assess::failure(&self.to_string()).map(without_raft);
            }
            Self::Store(_) | Self::Refused(Problem::RaftMember { .. }) => return None,
        };
        Some(Finding::new(kind, self.to_string()))
    }
}

/// The remedy for a damaged file is another one than that of raft.
fn without_raft(finding: Finding) -> Finding {
    if finding.kind != FindingKind::DamagedFile {
        return finding;
    }
    let cause = finding.message.split("; the file is damaged").next().unwrap_or_default();
    let message = format!(
        "{cause}; the file is damaged; if another server is active, move the file away: this member replicates again; if this is the \
         only one that had the data, see docs/runbooks/databases.md, section Active and backups"
    );
    Finding::new(FindingKind::DamagedFile, message)
}

/// Runs the member until shutdown is requested. `service` is the one that clients follow.
pub async fn run(
    options: Options,
    service: &Service,
    telemetry: &Telemetry,
    pod: Option<ObjectReference>,
) -> Result<(), DatabaseError> {
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
    let image = Image::read(&options).await;
    server_config::check_roles(&options, &image)?;
    let common = metrics::Metrics::new(options.kind, telemetry);
    let (state, reported) = watch::channel(MemberState::default());
    let page = telemetry.status_page().clone();
    let supervisor = Supervisor::new(&options, &image, &api, (page, pod), common.clone(), reported);
    let mut member = Member::new(options, service, &api, telemetry, image, state)?;
    let mut shutdown = telemetry.shutdown();
    tokio::select! {
        () = member.run(&mut elector, &mut shutdown, &common) => Ok(()),
        never = supervisor.run() => match never {},
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
    /// What the supervisor reports.
    pub(super) state: watch::Sender<MemberState>,
    /// What this image contains.
    pub(super) image: Image,
    /// The identity of the file.
    files: FileCache,
    /// Held while this manager uses the data directory; none until it could be taken.
    data_lock: Option<ManagerLock>,
}

impl Member {
    fn new(
        options: Options,
        service: &Service,
        api: &Api,
        telemetry: &Telemetry,
        image: Image,
        state: watch::Sender<MemberState>,
    ) -> Result<Self, DatabaseError> {
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
            state,
            image,
            files: FileCache::default(),
            data_lock: None,
            options,
        })
    }

    /// Runs the server, and starts it again when it ends, until shutdown is requested.
    async fn run(&mut self, elector: &mut Elector, shutdown: &mut Shutdown, common: &metrics::Metrics) {
        let mut retries = Retries::without_jitter(RESTART);
        loop {
            tokio::select! {
                () = self.prepare() => {}
                () = shutdown.wait() => return,
            }
            let began = Instant::now();
            let ended = self.serve(elector, shutdown).await;
            self.set_role(Role::Waiting);
            if ended == TurnEnd::Shutdown {
                return;
            }
            common.restarted();
            if began.elapsed() > STABLE_AFTER {
                retries.reset();
            }
            tokio::select! {
                () = sleep(retries.next_delay()) => {}
                () = shutdown.wait() => return,
            }
        }
    }

    /// Notes what the server is for its clients.
    pub(super) fn set_role(&self, role: Role) {
        self.metrics.active.set((role == Role::Active).into());
        self.metrics.replicating.set((role == Role::Backup).into());
        self.state.send_if_modified(|state| std::mem::replace(&mut state.role, role) != role);
    }

    /// This server is active, or a backup with current data.
    pub(super) fn ready(&self) {
        self.condition.ready();
        self.state.send_if_modified(|state| state.idle.take().is_some());
    }

    /// Says why this server is neither active nor a backup with current data.
    pub(super) fn not_ready(&self, why: impl Into<String>) {
        let why = why.into();
        self.condition.not_ready(why.as_str());
        self.state.send_if_modified(|state| {
            let changed = state.idle.as_ref() != Some(&why);
            state.idle = Some(why);
            changed
        });
    }

    /// Reports that no server runs, and why.
    fn show_down(&self, why: String, cause: Option<Finding>) {
        self.not_ready(format!("the server does not run: {why}"));
        self.state.send_modify(|state| (state.server, state.down) = (None, Some((why, cause))));
    }

    /// Repeats steps until the server can start.
    async fn prepare(&mut self) {
        let mut last = String::new();
        loop {
            self.heartbeat.beat();
            match self.step().await {
                Ok(true) => {
                    self.convert().await;
                    return;
                }
                Ok(false) => last.clear(),
                Err(error) => {
                    let text = error.to_string();
                    if text != last {
                        let why = format!("cannot prepare the database file: {text}; retrying every 2s");
                        self.show_down(why, error.finding());
                        last = text;
                    }
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// One step; true if the server can start.
    async fn step(&mut self) -> Result<bool, PrepareError> {
        let (kind, directory) = (self.options.kind, self.options.data_directory.clone());
        if self.data_lock.is_none() {
            // Two pods may have the same volume, and run directories of their own.
            let lock = ManagerLock::take(&directory, &format!(".ovn{}_db", kind.short()));
            self.data_lock = Some(lock.map_err(PrepareError::Lock)?);
        }
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
                self.show_down(
                    format!("cannot start ovsdb-server: {error}; retrying; hint: the image must contain it"),
                    None,
                );
                return TurnEnd::Restart;
            }
        };
        tracing::info!(database = kind.name(), pid = process.process(), "ovsdb-server started as a backup");
        self.not_ready("ovsdb-server is starting");
        let server = RunningServer { process: process.process(), warnings: process.warnings() };
        self.state.send_modify(|state| (state.server, state.down) = (Some(server), None));
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
        self.state.send_modify(|state| state.server = None);
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

    /// Reports why the server ended.
    pub(super) fn exited(&self, process: &Running, exit: &daemon::Exit) -> TurnEnd {
        let (why, cause) = assess::exit(&exit.to_string(), &process.warnings().recent());
        self.show_down(format!("{why}; restarting"), cause.map(without_raft));
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
