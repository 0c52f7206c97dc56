//! The control loop: the one task that owns all state. It waits for the next event, feeds the engine, commits its
//! transactions and starts its effects.

use std::time::Duration;

use database::Kind;
use kubernetes::{Api, Elector, LossReason, Recorder};
use ovsdb::client::{Client, Committer, Subscription};
use ovsdb::replica::{Changes, Snapshot};
use ovsdb::transaction::Transaction;
use remotes::Servers;
use telemetry::Telemetry;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use topology::engine::Next;
use topology::{Engine, Observed};

use crate::api_writer::{ApiResult, ApiWriter};
use crate::authorship::Authorship;
use crate::binding_watch::{BindingWatch, has_progress};
use crate::commit::{COMMIT_DEADLINE, CommitOutcome, commit, take_over};
use crate::conditions::Conditions;
use crate::databases;
use crate::effect_runner::EffectRunner;
use crate::error::ControllerError;
use crate::leader_election::{LeaderElection, LeaseEvent};
use crate::leader_lock::{LeaderLock, Want};
use crate::messages::TRANSACTION_REFUSED;
use crate::metrics::Metrics;
use crate::node_watch::NodeWatch;
use crate::northd::{self, Northd};
use crate::northd_watch::NorthdWatch;
use crate::options::Options;
use crate::ovn_release;
use crate::recorded_cluster::RecordedCluster;
use crate::repairs::Repairs;
use crate::role::{Advance, Role, advance};
use crate::watches::{self, WatchEvent};

/// Interval of stall checks and metric updates.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the controller until shutdown; releases the Lease before it returns.
pub async fn run(options: Options, telemetry: &Telemetry) -> Result<(), ControllerError> {
    options.cluster.check()?;
    topology::allocation::Allocator::new(&options.cluster)?;
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
    let election = match &options.election.kubeconfig {
        Some(file) => Api::from_kubeconfig(Some(file), None).await?,
        None => api.clone(),
    };
    let elector = Elector::new(&election, options.election.lease.clone())?;
    let namespace = options.election.lease.namespace.clone();
    let recorded = [Kind::Northbound, Kind::Southbound].map(|kind| RecordedCluster::new(&election, &namespace, kind));
    let mut control_loop = ControlLoop::new(options, &api, elector, recorded, telemetry);
    let ended = control_loop.run(&telemetry.shutdown()).await;
    if ended.is_err() {
        control_loop.election.resign.notify_one();
    }
    control_loop.election.ended().await;
    ended
}

struct ControlLoop {
    options: Options,
    engine: Engine,
    began: Instant,
    role: Role,
    lock: LeaderLock,
    takeovers: u64,
    /// The writer's name in the sequence values of this term.
    writer: String,
    nb: Client,
    nb_changes: Subscription,
    sb: Client,
    sb_changes: Subscription,
    servers: Servers,
    /// The records of the northbound and the southbound cluster.
    recorded: [RecordedCluster; 2],
    watches: mpsc::Receiver<WatchEvent>,
    election: LeaderElection,
    api_results: mpsc::UnboundedReceiver<ApiResult>,
    effects: EffectRunner,
    node_watch: NodeWatch,
    binding_watch: BindingWatch,
    metrics: Metrics,
    northd: Option<Northd>,
    northd_watch: NorthdWatch,
    authorship: Authorship,
    /// Since when the northbound database is not connected.
    nb_down_since: Option<Instant>,
    /// How often the northbound database was replaced by a new one.
    nb_replacements: u64,
    /// Whether the northbound server's features are known: only then may it lead.
    features_known: bool,
    conditions: Conditions,
}

impl ControlLoop {
    fn new(
        options: Options,
        api: &Api,
        elector: Elector,
        recorded: [RecordedCluster; 2],
        telemetry: &Telemetry,
    ) -> Self {
        let servers = Servers::follow(api, &options.northbound, &options.southbound);
        let nb = databases::northbound(&options.northbound, &servers.northbound);
        let sb = databases::southbound(&options.southbound, &servers.southbound);
        for (recorded, client) in recorded.iter().zip([&nb, &sb]) {
            tokio::spawn(recorded.clone().follow(client.clone()));
        }
        let (lock, leader_gone) = LeaderLock::start(nb.clone());
        let (api_writer, api_results) = ApiWriter::new(api);
        let metrics = Metrics::register(telemetry, api);
        let recorder = Recorder::new(api, "ovnkube-controller", &options.election.lease.identity);
        let (southbound, repairs) = (sb.clone(), Repairs::default());
        let node_watch = NodeWatch::new(api, options.election.lease.duration);
        let effects = EffectRunner { api_writer, recorder, metrics: metrics.clone(), southbound, repairs };
        let health = telemetry.health();
        let conditions = Conditions::new(health);
        Self {
            engine: Engine::new(options.cluster.clone()),
            began: Instant::now(),
            role: Role::Standby,
            lock,
            takeovers: 0,
            writer: String::new(),
            nb_changes: nb.subscribe(),
            sb_changes: sb.subscribe(),
            nb,
            sb,
            servers,
            recorded,
            watches: watches::start(api),
            election: LeaderElection::start(elector, leader_gone, health.condition("Lease"), telemetry.shutdown()),
            api_results,
            effects,
            node_watch,
            binding_watch: BindingWatch::default(),
            metrics,
            northd: None,
            northd_watch: NorthdWatch::new(options.northd_control.clone()),
            authorship: Authorship::default(),
            nb_down_since: Some(Instant::now()),
            nb_replacements: 0,
            features_known: false,
            conditions,
            options,
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    async fn run(&mut self, shutdown: &telemetry::Shutdown) -> Result<(), ControllerError> {
        let (mut status, mut southbound) = (self.nb.status(), self.sb.status());
        let mut next_check = Instant::now();
        loop {
            let more = self.reconcile()?;
            let wake = self.engine.deadline().map_or(next_check, |at| (self.began + at).min(next_check));
            tokio::select! {
                biased;
                () = shutdown.wait() => {
                    self.demote();
                    return Ok(());
                }
                event = self.election.events.recv() => if let Some(event) = event { self.lease_event(event)? },
                advance = advance(&mut self.role) => match advance {
                    Advance::TakenOver(over) => self.take_over_done(over),
                    Advance::CommitDone(committer, outcome) => self.commit_done(committer, outcome),
                },
                changes = self.nb_changes.next() => self.database_changed(&changes),
                event = self.watches.recv() => self.watch_event(event)?,
                result = self.api_results.recv() => if let Some(result) = result {
                    result.deliver(&mut self.engine, &self.metrics, self.began.elapsed());
                },
                changes = self.sb_changes.next() => {
                    self.binding_watch.changed(&changes, &self.engine, self.began.elapsed());
                    if has_progress(&changes) {
                        self.progress(&changes.snapshot);
                    }
                }
                changed = status.changed() => if changed.is_ok() { self.check_northbound()? },
                changed = southbound.changed() => if changed.is_ok() {
                    self.conditions.southbound.update(&southbound.borrow_and_update());
                },
                () = self.servers.changed() => {
                    let addresses = self.servers.addresses();
                    self.engine.set_databases(addresses, self.began.elapsed());
                }
                () = std::future::ready(()), if more => {}
                () = sleep_until(wake) => {
                    if Instant::now() >= next_check {
                        next_check = Instant::now() + CHECK_INTERVAL;
                        self.check()?;
                    }
                }
            }
        }
    }

    /// Plans and sends the next transaction and starts effects; true if there is more to plan without waiting.
    fn reconcile(&mut self) -> Result<bool, ControllerError> {
        // Before the next transaction is planned: otherwise rows of the last one that appear only now would be taken for
        // another client's changes. For the same reason the snapshot comes with the changes: the replica may be newer.
        let (changes, snapshot) = self.nb_changes.take_with_snapshot();
        if let Some(changes) = changes {
            self.database_changed(&changes);
        }
        self.check_replica(&snapshot)?;
        let mut more = false;
        if let Role::Leading(_) = &self.role {
            let now = self.now();
            match self.engine.next(&snapshot, now) {
                Next::Idle => {}
                Next::Again => more = true,
                Next::Commit(transaction) => self.send(transaction),
            }
        }
        if let Some(northd) = self.northd.as_ref().filter(|_| !self.engine.lacks_rows()) {
            northd.northbound_complete();
        }
        for effect in self.engine.take_effects() {
            self.effects.run(effect);
        }
        Ok(more)
    }

    fn send(&mut self, transaction: Transaction) {
        self.metrics.operations.inc_by(transaction.operations().len() as u64);
        self.authorship.sent(&transaction, self.session());
        match std::mem::replace(&mut self.role, Role::Standby) {
            Role::Leading(committer) => {
                self.role = Role::Committing(Box::pin(commit(committer, transaction)), Instant::now());
            }
            other => self.role = other,
        }
    }

    /// Continues when the replica shows the last committed sequence value.
    fn check_replica(&mut self, snapshot: &Snapshot) -> Result<(), ControllerError> {
        let (Role::AwaitingTakeOver(committer, _) | Role::AwaitingReplica(committer, ..)) = &self.role else {
            return Ok(());
        };
        let shown = databases::cell(snapshot).and_then(|cell| cell.value_in(snapshot));
        if shown.is_none() || shown.as_deref() != committer.sequence() {
            return Ok(());
        }
        let now = self.now();
        match std::mem::replace(&mut self.role, Role::Standby) {
            Role::AwaitingReplica(committer, committed, _) => {
                if committed {
                    self.engine.committed(snapshot, now);
                }
                self.role = Role::Leading(committer);
            }
            Role::AwaitingTakeOver(committer, _) => {
                self.check_foreign(snapshot)?;
                self.engine.promote(snapshot, self.options.adopt, now)?;
                self.progress(&self.sb.snapshot());
                northd::set_probe_interval(&self.nb);
                ovn_release::check(&self.nb);
                let complete = !self.engine.lacks_rows();
                self.northd = Northd::start(&self.options, &self.servers, &self.recorded, complete);
                self.metrics.leader.set(1);
                tracing::info!(sequence = committer.sequence(), "started leading");
                self.role = Role::Leading(committer);
            }
            other => self.role = other,
        }
        Ok(())
    }

    /// An error if the database has another controller's network and adoption was not requested.
    fn check_foreign(&self, snapshot: &Snapshot) -> Result<(), ControllerError> {
        let foreign = topology::adopt::foreign_network(snapshot).filter(|_| !self.options.adopt);
        foreign.map_or(Ok(()), |row| Err(ControllerError::ForeignNetwork(row)))
    }

    fn lease_event(&mut self, event: LeaseEvent) -> Result<(), ControllerError> {
        match event {
            LeaseEvent::Acquired => {
                // Before any write, the sequence value included.
                self.check_foreign(&self.nb.snapshot())?;
                self.takeovers += 1;
                // Unique: among terms of this process, and among processes.
                let writer = format!(
                    "{}/{}/{}",
                    self.options.election.lease.identity,
                    kubernetes::timestamp_nanoseconds(),
                    self.takeovers
                );
                tracing::debug!(writer, "taking over the northbound database");
                self.writer = writer.clone();
                self.role = Role::TakingOver(Box::pin(take_over(self.nb.clone(), writer)));
                self.lock.want(Want::Hold);
            }
            // The cause was logged with the decision.
            LeaseEvent::Lost(LossReason::Stopped) => {
                tracing::info!("leader Lease released");
                self.demote();
            }
            LeaseEvent::Lost(reason) => {
                tracing::warn!(error = %reason, "leader Lease lost; standing down");
                self.demote();
            }
        }
        Ok(())
    }

    fn progress(&mut self, southbound: &Snapshot) {
        if let Some((chassis, northd)) = databases::progress(southbound) {
            let now = self.now();
            self.engine.progress(chassis, northd, now);
        }
    }

    fn demote(&mut self) {
        self.engine.demote();
        self.role = Role::Standby;
        let eligible = *self.election.eligible.borrow();
        self.lock.want(if eligible { Want::Queue } else { Want::Nothing });
        self.northd = None;
        self.metrics.leader.set(0);
    }

    fn resign(&mut self, error: &str) {
        tracing::error!(error, "releasing leader Lease: northbound commits fail");
        self.step_down();
    }

    fn step_down(&mut self) {
        self.demote();
        self.election.resign.notify_one();
    }

    fn take_over_done(&mut self, over: Result<Committer, String>) {
        match over {
            Ok(committer) => self.role = Role::AwaitingTakeOver(committer, Instant::now()),
            Err(error) => self.resign(&error),
        }
    }

    fn commit_done(&mut self, committer: Committer, outcome: CommitOutcome) {
        let now = self.now();
        self.role = match outcome {
            CommitOutcome::Committed => {
                self.metrics.commits.inc();
                Role::AwaitingReplica(committer, true, Instant::now())
            }
            CommitOutcome::NotCommitted => {
                self.authorship.not_committed();
                self.engine.abandoned();
                Role::AwaitingReplica(committer, false, Instant::now())
            }
            CommitOutcome::Refused { owner, error } => {
                self.metrics.refused.inc();
                self.authorship.not_committed();
                tracing::warn!(
                    owner,
                    error,
                    "{TRANSACTION_REFUSED}; parked its owner, whose present rows stay in effect; committing the rest"
                );
                self.engine.refused(owner.as_deref(), &error, now);
                Role::Leading(committer)
            }
            CommitOutcome::Unknown(error) => return self.resign(&error),
            CommitOutcome::Fenced(error) => {
                tracing::warn!(error, "releasing leader Lease: commits are fenced");
                return self.step_down();
            }
        };
    }

    /// The northbound database changed: detects a takeover by another controller, and drift.
    fn database_changed(&mut self, changes: &Changes) {
        if !self.engine.is_leading() {
            return;
        }
        // A takeover is visible in the database first: an idle leader learns of it here, without the API.
        if let Some(writer) = databases::writer(&changes.snapshot).filter(|writer| *writer != self.writer) {
            tracing::warn!(writer, "another controller has taken over the northbound database; stepping down");
            return self.step_down();
        }
        let (foreign, ambiguous) = self.authorship.classify(changes, self.session());
        let now = self.now();
        self.engine.drifted(foreign.owners, foreign.rows, now);
        self.engine.maybe_drifted(ambiguous.owners, ambiguous.rows, now);
    }

    /// The number of the current session with the northbound database; none if not connected.
    fn session(&self) -> Option<u64> {
        let status = self.nb.status();
        let status = status.borrow();
        status.connected.then_some(status.sessions)
    }

    fn watch_event(&mut self, event: Option<WatchEvent>) -> Result<(), ControllerError> {
        let now = self.now();
        self.node_watch.observe(event.as_ref(), now);
        match event {
            Some(WatchEvent::Objects(objects)) => {
                let listed = objects.iter().any(|observed| matches!(observed, Observed::Listed(_)));
                for observed in objects {
                    self.engine.observe(observed, now);
                }
                if listed {
                    self.update_eligibility();
                }
            }
            Some(WatchEvent::Failed(kind, error)) => {
                self.conditions.objects.not_ready(format!("watch of {} failed: {error}", kind.plural()));
            }
            Some(WatchEvent::Resumed(_)) => self.update_eligibility(),
            Some(WatchEvent::Ended(plural)) => return Err(ControllerError::WatchEnded(plural)),
            None => return Err(ControllerError::WatchEnded("objects")),
        }
        Ok(())
    }

    /// Competes for the Lease, or stops doing so: all objects must be listed, and the northbound database connected.
    fn update_eligibility(&mut self) {
        let complete = self.engine.is_complete();
        if complete {
            self.conditions.objects.ready();
        }
        let connected = self.nb.status().borrow().connected;
        let may = complete && connected && self.features_known;
        let changed = self.election.eligible.send_if_modified(|eligible| std::mem::replace(eligible, may) != may);
        if matches!(self.role, Role::Standby) {
            self.lock.want(if may { Want::Queue } else { Want::Nothing });
        }
        if changed && may && !self.engine.is_leading() {
            tracing::info!("standby ready: caches synced, northbound connected; waiting for Lease");
        }
    }

    fn check_northbound(&mut self) -> Result<(), ControllerError> {
        let status = self.nb.status().borrow().clone();
        if self.conditions.northbound.update(&status) {
            self.nb_down_since = None;
            self.conditions.northbound_up.beat();
        } else {
            self.nb_down_since.get_or_insert_with(Instant::now);
        }
        // ovn-northd must not see the new database before it is filled.
        let former = std::mem::replace(&mut self.nb_replacements, status.replacements);
        if former != status.replacements && self.engine.is_leading() {
            tracing::warn!("releasing leader Lease: the northbound database was replaced by a new one");
            self.step_down();
        }
        // At once, not with the next check: a start should not wait a second for it.
        if !self.features_known
            && status.connected
            && let Some(features) = databases::features(&self.nb)?
        {
            let mut settings = self.engine.settings().clone();
            settings.features = features;
            self.engine.set_settings(settings);
            self.features_known = true;
        }
        self.update_eligibility();
        Ok(())
    }

    /// Checks for stalls and updates metrics, once a second.
    fn check(&mut self) -> Result<(), ControllerError> {
        self.conditions.alive.beat();
        tracing::debug!(complete = self.engine.is_complete(), backlog = self.engine.backlog(), "periodic check");
        if self.nb_down_since.is_none() {
            self.conditions.northbound_up.beat();
        }
        if !self.features_known {
            self.check_northbound()?;
        }
        let leads = !matches!(self.role, Role::Standby | Role::TakingOver(_));
        let nb_down = self.nb_down_since.is_some_and(|since| since.elapsed() > COMMIT_DEADLINE);
        let stalled = self.role.is_stalled() || leads && nb_down;
        if stalled {
            let last = self.nb.status().borrow().last_error.clone().unwrap_or_default();
            self.resign(&format!("northbound database not connected: {last}"));
        }
        let now = self.now();
        let replacements = self.nb.status().borrow().replacements + self.sb.status().borrow().replacements;
        let visible = self.engine.is_leading() && self.sb.status().borrow().connected;
        let behind = self.engine.northd_behind_since().map(|since| now.saturating_sub(since));
        let behind = visible.then(|| behind.unwrap_or_default());
        self.northd_watch.check(behind, replacements, &self.options.election.lease, &self.effects);
        self.effects.repairs.flush();
        let renewed = *self.election.renewals.borrow();
        self.metrics.lease_unrenewed.set(renewed.map_or(0.0, |renewed| renewed.elapsed().as_secs_f64()));
        let renewed = renewed.map(|renewed| now.saturating_sub(renewed.elapsed()));
        self.node_watch.check(&self.engine, &self.effects, renewed, now);
        self.binding_watch.check(&self.engine, &self.effects, now);
        self.metrics.update(&self.engine, now);
        Ok(())
    }
}
