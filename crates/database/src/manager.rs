//! Runs and cares for one raft member: prepares its file, runs ovsdb-server, watches the cluster, and stops in order.

use std::path::Path;
use std::time::{Duration, Instant};

use backoff::{Backoff, Retries};
use daemon::{Control, Daemon, Running};
use kubernetes::{Api, Note, ObjectReference, Recorder, Severity};
use ovsdb::client::{Client, Config, Remote, Status, control_command};
use ovsdb::uuid::Uuid;
use telemetry::{Condition, Shutdown, Telemetry};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::care::{self, Action, Finding};
use crate::disk;
use crate::error::DatabaseError;
use crate::file::FileState;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::prepare::{PrepareError, prepare};
use crate::record::Record;
use crate::status::ClusterStatus;
use crate::store::RecordStore;

/// Interval of looks at the cluster.
const STATUS_PERIOD: Duration = Duration::from_secs(5);
/// The disk and the number of nodes are checked once in this many polls of the cluster.
const SLOW_PERIOD: u32 = 6;
/// A server that is busy with a large transaction replies late.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(4);
/// A leader hands over and writes its last entries.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// ovsdb-server that neither replies nor uses CPU for this long is killed.
const HUNG_AFTER: Duration = Duration::from_secs(15);
/// Delay between restarts of the server.
const RESTART: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// A server that ran for this long restarts without delay.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// A file that is smaller is not worth a compaction.
const WORTH_COMPACTING: u64 = 16 << 20;

/// Runs the member until shutdown is requested.
pub async fn run(options: Options, telemetry: &Telemetry, pod: Option<ObjectReference>) -> Result<(), DatabaseError> {
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
    std::fs::create_dir_all(&options.run_directory)
        .map_err(|error| DatabaseError::Directory(options.run_directory.clone(), error))?;
    let recorder = Recorder::new(&api, "ovnkube-db", &options.member);
    let mut manager = Manager {
        store: RecordStore::new(api, options.namespace.clone()),
        condition: telemetry.health().condition(options.kind.name()),
        metrics: Metrics::new(options.kind, telemetry),
        recorder,
        pod,
        found: Vec::new(),
        compacted: None,
        wanted_timer: None,
        addresses: None,
        options,
    };
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
        if manager.serve(&mut shutdown).await {
            return Ok(());
        }
        manager.metrics.restarted();
        if began.elapsed() > STABLE_AFTER {
            retries.reset();
        }
        tokio::select! {
            () = sleep(retries.next_delay()) => {}
            () = shutdown.wait() => return Ok(()),
        }
    }
}

/// What a look at the cluster leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    JoinAgain,
}

struct Manager {
    options: Options,
    store: RecordStore,
    condition: Condition,
    metrics: Metrics,
    recorder: Recorder,
    /// The object of Events.
    pod: Option<ObjectReference>,
    /// What was reported and still holds.
    found: Vec<Finding>,
    compacted: Option<Instant>,
    /// Election timer for the size of the cluster; none until known.
    wanted_timer: Option<u64>,
    /// Raft addresses of all members; none until known.
    addresses: Option<Vec<String>>,
}

impl Manager {
    async fn prepare(&mut self) {
        let (options, store) = (self.options.clone(), self.store.clone());
        let report = |error: &PrepareError| self.show_down(error.to_string());
        prepare(&options, &store, report).await;
    }

    /// Reports that no server runs.
    fn show_down(&mut self, why: String) {
        self.condition.not_ready(why.clone());
        self.metrics.clear_status();
        // A full disk may be the reason, and it is not looked at while no server runs.
        let disk: Vec<Finding> = self.found.iter().filter(|finding| finding.is_of_disk()).cloned().collect();
        self.found.retain(Finding::is_of_disk);
        self.report([vec![Finding::NotRunning { why }], disk].concat());
    }

    /// Runs the server until it ends (false) or shutdown is requested (true).
    async fn serve(&mut self, shutdown: &mut Shutdown) -> bool {
        let kind = self.options.kind;
        let daemon = Daemon {
            name: "ovsdb-server",
            program: "ovsdb-server".into(),
            arguments: self.options.server_arguments(),
            control: Control::Path(kind.control_socket(&self.options.run_directory)),
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
        tracing::info!(database = kind.name(), process = server.process(), "ovsdb-server started");
        let client = self.local_client();
        let mut connection = client.status();
        let mut ticks = interval(STATUS_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tick = 0_u32;
        self.condition.not_ready("ovsdb-server is starting");
        loop {
            tokio::select! {
                exit = server.wait() => {
                    let complaint = server.last_complaint();
                    let complaint = if complaint.is_empty() { String::new() } else { format!(" ({complaint})") };
                    self.show_down(format!("ovsdb-server exited: {exit}{complaint}; restarting"));
                    return false;
                }
                () = shutdown.wait() => {
                    self.stop(&mut server).await;
                    return true;
                }
                changed = connection.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    self.show_readiness(&connection);
                }
                _ = ticks.tick() => {
                    if self.look(server.control(), tick).await == Next::JoinAgain {
                        self.stop(&mut server).await;
                        return false;
                    }
                    tick = tick.wrapping_add(1);
                }
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
        if status.connected {
            self.condition.ready();
        } else {
            let why = status.last_error.clone().unwrap_or_else(|| "connecting".into());
            self.condition.not_ready(format!("the server is not in contact with a quorum: {why}"));
        }
    }

    async fn stop(&self, server: &mut Running) {
        // A leader transfers its leadership before it exits.
        tracing::info!(database = self.options.kind.name(), "stopping ovsdb-server");
        server.stop(STOP_LIMIT).await;
    }

    /// Looks at the cluster, and every so often at the disk.
    async fn look(&mut self, control: &Path, tick: u32) -> Next {
        let kind = self.options.kind;
        let status = match command(control, "cluster/status", &[kind.schema()]).await {
            Ok(text) => ClusterStatus::parse(&text),
            // Just started, or busy; the daemon's own check tells whether it hangs.
            Err(error) => {
                tracing::debug!(database = kind.name(), error, "ovsdb-server does not reply");
                return Next::GoOn;
            }
        };
        self.metrics.set_status(&status);
        if tick == 0 {
            // Freed memory is returned to the host after each compaction.
            let _ = command(control, "ovsdb-server/memory-trim-on-compaction", &["on"]).await;
        }
        let mut findings = care::findings(&status);
        if tick.is_multiple_of(SLOW_PERIOD) {
            findings.extend(self.look_at_disk(control).await);
            self.wanted_timer = self.wanted_timer().await.or(self.wanted_timer);
            self.addresses = self.addresses().await;
        } else {
            // Still holds until the next look at the disk.
            findings.extend(self.found.iter().filter(|finding| finding.is_of_disk()).cloned());
        }
        let in_quorum = !findings.iter().any(|finding| matches!(finding, Finding::NoQuorum { .. }));
        self.report(findings);
        if (!in_quorum || tick.is_multiple_of(SLOW_PERIOD)) && self.is_replaced(&status).await {
            tracing::warn!(database = kind.name(), "the cluster was replaced by an administrator; joining the new one");
            return Next::JoinAgain;
        }
        let wanted = self.wanted_timer.unwrap_or(status.election_timer);
        for action in care::actions(&status, wanted, self.addresses.as_deref()) {
            self.act(control, &action).await;
        }
        Next::GoOn
    }

    /// Whether the record says that this member's cluster was replaced.
    async fn is_replaced(&self, status: &ClusterStatus) -> bool {
        // A server that has not joined yet does not know its cluster, but its file does; it is still small.
        let cluster = status.cluster.parse().ok().or_else(|| self.recorded_in_file());
        let Some(cluster) = cluster else { return false };
        match self.store.read(self.options.kind).await {
            Ok(Some(record)) => record.has_replaced(cluster),
            Ok(None) => {
                self.restore_record(status).await;
                false
            }
            // Without the API nothing changes.
            Err(_) => false,
        }
    }

    /// Writes the record again if another client deleted it: without it, an empty member would create a second cluster.
    async fn restore_record(&self, status: &ClusterStatus) {
        if !status.is_member() {
            return;
        }
        let record = Record::new(status.cluster.clone(), &self.options.member);
        let database = self.options.kind.name();
        match self.store.create(self.options.kind, &record).await {
            Ok(true) => tracing::warn!(database, "ConfigMap ovnkube-db had no record of this database; wrote it again"),
            Ok(false) => {}
            Err(error) => tracing::warn!(database, %error, "cannot restore the record; retrying"),
        }
    }

    /// Raft addresses of all members, running or not; none if the API does not tell.
    async fn addresses(&self) -> Option<Vec<String>> {
        let hosts = self.store.hosts(&self.options.peers).await.ok()?;
        Some(hosts.iter().map(|host| self.options.raft_address(host)).collect())
    }

    fn recorded_in_file(&self) -> Option<Uuid> {
        match FileState::read(&self.options.kind.file(&self.options.data_directory)) {
            Ok(FileState::Clustered(header)) => header.cluster,
            _ => None,
        }
    }

    async fn wanted_timer(&self) -> Option<u64> {
        if self.options.election_timer.is_some() {
            return self.options.election_timer;
        }
        self.store.count_nodes().await.ok().map(care::election_timer)
    }

    async fn look_at_disk(&mut self, control: &Path) -> Vec<Finding> {
        let kind = self.options.kind;
        let directory = self.options.data_directory.clone();
        let looked = tokio::task::spawn_blocking(move || disk::look(&directory, &kind.file(&directory))).await;
        let disk = match looked {
            Ok(Ok(disk)) => disk,
            Ok(Err(error)) => {
                tracing::error!(database = kind.name(), %error, "cannot write to the data directory");
                return vec![Finding::DiskAlmostFull { free_mb: 0, needed_mb: 1 }];
            }
            Err(_) => return Vec::new(),
        };
        self.metrics.set_disk(disk.size, disk.free, disk.sync);
        let findings = care::disk_findings(disk.free, disk.size, disk.sync);
        let full = findings.iter().any(|finding| matches!(finding, Finding::DiskAlmostFull { .. }));
        let lately = self.compacted.is_some_and(|at| at.elapsed() < Duration::from_secs(600));
        if full && !lately && disk.size > WORTH_COMPACTING && disk.free > disk.size {
            self.compacted = Some(Instant::now());
            match command(control, "ovsdb-server/compact", &[kind.schema()]).await {
                Ok(_) => tracing::warn!(database = kind.name(), "compacted the database: the disk is almost full"),
                Err(error) => tracing::error!(database = kind.name(), error, "cannot compact the database"),
            }
        }
        findings
    }

    async fn act(&self, control: &Path, action: &Action) {
        let (database, schema) = (self.options.kind.name(), self.options.kind.schema());
        match action {
            Action::Kick { server, reason } => match command(control, "cluster/kick", &[schema, server]).await {
                Ok(_) => tracing::warn!(database, server, reason, "removed a stale server from the cluster"),
                Err(error) => tracing::warn!(database, server, error, "cannot remove a stale server; retrying"),
            },
            Action::SetElectionTimer(timer) => {
                match command(control, "cluster/change-election-timer", &[schema, &timer.to_string()]).await {
                    Ok(_) => tracing::info!(database, timer, "changed the election timer"),
                    Err(error) => tracing::warn!(database, timer, error, "cannot change the election timer; retrying"),
                }
            }
        }
    }

    /// Logs and records what is new, and logs what is over.
    fn report(&mut self, findings: Vec<Finding>) {
        let database = self.options.kind.name();
        let has = |list: &[Finding], finding: &Finding| list.iter().any(|other| other.name() == finding.name());
        for finding in findings.iter().filter(|finding| !has(&self.found, finding)) {
            tracing::error!(database, problem = finding.name(), "{finding}");
            self.event(finding.name(), &format!("{database} database: {finding}"));
        }
        for finding in self.found.iter().filter(|finding| !has(&findings, finding)) {
            tracing::info!(database, problem = finding.name(), "problem resolved");
        }
        self.metrics.set_problems(&findings);
        self.found = findings;
    }

    fn event(&self, reason: &str, message: &str) {
        let Some(object) = self.pod.clone() else { return };
        self.recorder.record(Note {
            object,
            severity: Severity::Warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }
}

async fn command(control: &Path, command: &str, arguments: &[&str]) -> Result<String, String> {
    match timeout(COMMAND_TIMEOUT, control_command(control, command, arguments)).await {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no reply in time".into()),
    }
}
