//! The pilot: the one task that owns the engine, and waits for whatever happens first.

use std::time::Duration;

use kubernetes::{Api, Elector, LossReason, Recorder};
use ovsdb::client::{Client, Committer, Subscription};
use ovsdb::replica::{Changes, Snapshot};
use ovsdb::transaction::Transaction;
use telemetry::{Condition, Heartbeat, Telemetry};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use topology::engine::Next;
use topology::{Engine, Observed};

use crate::authorship::Authorship;
use crate::campaign::{Campaign, LeaseNews};
use crate::commit::{COMMIT_DEADLINE, Verdict, commit, take_over};
use crate::databases;
use crate::error::ControllerError;
use crate::leader_lock::{LeaderLock, Want};
use crate::link::Link;
use crate::metrics::Metrics;
use crate::node_watch::NodeWatch;
use crate::northd::{self, Northd};
use crate::northd_watch::NorthdWatch;
use crate::options::Options;
use crate::outlet::Outlet;
use crate::patches::{Answer, Patches};
use crate::repairs::Repairs;
use crate::role::{Advance, Role, advance};
use crate::watches::{self, Seen};

/// How often the pilot looks around although nothing happened.
const ROUND: Duration = Duration::from_secs(1);
/// A pilot that has not looked around for so long hangs.
const HANGS: Duration = Duration::from_secs(60);
/// Without the northbound database for so long, a restart is tried. A missing API makes us not ready, and nothing more: its watches need no restart.
const HOPELESS: Duration = Duration::from_secs(120);

/// Runs the controller until it is asked to stop.
pub async fn run(options: Options, telemetry: &Telemetry) -> Result<(), ControllerError> {
    options.cluster.check()?;
    topology::allocation::Allocator::new(&options.cluster)?;
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
    let election = match &options.election.kubeconfig {
        Some(file) => Api::from_kubeconfig(Some(file), None).await?,
        None => api.clone(),
    };
    let elector = Elector::new(&election, options.election.lease.clone())?;
    let mut pilot = Pilot::new(options, &api, elector, telemetry);
    let ended = pilot.fly(&telemetry.shutdown()).await;
    if ended.is_err() {
        pilot.campaign.resign.notify_one();
    }
    pilot.campaign.ended().await;
    ended
}

struct Pilot {
    options: Options,
    engine: Engine,
    began: Instant,
    role: Role,
    lock: LeaderLock,
    takeovers: u64,
    /// The name under which this term's transactions are committed.
    writer: String,
    nb: Client,
    nb_changes: Subscription,
    sb: Client,
    sb_changes: Subscription,
    seen: mpsc::Receiver<Seen>,
    campaign: Campaign,
    answers: mpsc::UnboundedReceiver<Answer>,
    outlet: Outlet,
    node_watch: NodeWatch,
    metrics: Metrics,
    northd: Option<Northd>,
    northd_watch: NorthdWatch,
    authorship: Authorship,
    /// Since when the northbound database is not there.
    without_nb: Option<Instant>,
    /// Whether the server's features are known.
    featured: bool,
    conditions: Conditions,
}

struct Conditions {
    objects: Condition,
    northbound: Link,
    southbound: Link,
    beat: Heartbeat,
    hope: Heartbeat,
}

impl Pilot {
    fn new(options: Options, api: &Api, elector: Elector, telemetry: &Telemetry) -> Self {
        let nb = databases::northbound(&options.northbound);
        let sb = databases::southbound(&options.southbound);
        let (lock, leader_gone) = LeaderLock::start(nb.clone());
        let (patches, answers) = Patches::new(api);
        let metrics = Metrics::register(telemetry, api);
        let recorder = Recorder::new(api, "ovnkube-controller", &options.election.lease.identity);
        let (southbound, repairs) = (sb.clone(), Repairs::default());
        let node_watch = NodeWatch::new(api);
        let outlet = Outlet { patches, recorder, metrics: metrics.clone(), southbound, repairs };
        let health = telemetry.health();
        let conditions = Conditions {
            objects: health.condition("objects"),
            northbound: Link::new("northbound", health.condition("northbound database")),
            southbound: Link::new("southbound", health.condition("southbound database")),
            beat: health.heartbeat("controller", HANGS),
            hope: health.heartbeat("northbound database", HOPELESS),
        };
        conditions.objects.not_ready("the objects of the API are not listed yet");
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
            seen: watches::start(api),
            campaign: Campaign::start(elector, leader_gone, telemetry.shutdown()),
            answers,
            outlet,
            node_watch,
            metrics,
            northd: None,
            northd_watch: NorthdWatch::new(options.northd_control.clone()),
            authorship: Authorship::default(),
            without_nb: Some(Instant::now()),
            featured: false,
            conditions,
            options,
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    async fn fly(&mut self, shutdown: &telemetry::Shutdown) -> Result<(), ControllerError> {
        let (mut status, mut southbound) = (self.nb.status(), self.sb.status());
        let mut round = Instant::now();
        loop {
            let more = self.work()?;
            let wake = self.engine.deadline().map_or(round, |at| (self.began + at).min(round));
            tokio::select! {
                biased;
                () = shutdown.wait() => {
                    self.demote();
                    return Ok(());
                }
                news = self.campaign.news.recv() => if let Some(news) = news { self.lease(news)? },
                advance = advance(&mut self.role) => match advance {
                    Advance::TakenOver(over) => self.took_over(over),
                    Advance::Judged(committer, verdict) => self.judged(committer, verdict),
                },
                changes = self.nb_changes.next() => self.database_changed(&changes),
                seen = self.seen.recv() => self.saw(seen)?,
                answer = self.answers.recv() => if let Some(answer) = answer {
                    answer.tell(&mut self.engine, &self.metrics, self.began.elapsed());
                },
                changes = self.sb_changes.next() => {
                    self.progress(&changes.snapshot);
                }
                changed = status.changed() => if changed.is_ok() { self.look_at_database()? },
                changed = southbound.changed() => if changed.is_ok() {
                    self.conditions.southbound.look(&southbound.borrow_and_update());
                },
                () = std::future::ready(()), if more => {}
                () = sleep_until(wake) => {
                    if Instant::now() >= round {
                        round = Instant::now() + ROUND;
                        self.look_around()?;
                    }
                }
            }
        }
    }

    /// Does what can be done at once; says whether there is more of it, after everybody else had a turn.
    fn work(&mut self) -> Result<bool, ControllerError> {
        // Before the next transaction is planned: else those rows of the last one that are shown only now would be taken
        // for somebody else's changes. For the same reason the replica itself is not asked: it may show more by now.
        let (changes, snapshot) = self.nb_changes.look();
        if let Some(changes) = changes {
            self.database_changed(&changes);
        }
        self.arrive(&snapshot)?;
        let mut more = false;
        if let Role::Leading(_) = &self.role {
            let now = self.now();
            match self.engine.next(&snapshot, now) {
                Next::Idle => {}
                Next::Again => more = true,
                Next::Commit(transaction) => self.send(transaction),
            }
        }
        for effect in self.engine.take_effects() {
            self.outlet.carry_out(effect);
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

    /// Goes on when the replica shows what was committed last.
    fn arrive(&mut self, snapshot: &Snapshot) -> Result<(), ControllerError> {
        let (Role::Arriving(committer, _) | Role::Settling(committer, ..)) = &self.role else { return Ok(()) };
        let shown = databases::cell(snapshot).and_then(|cell| cell.value_in(snapshot));
        if shown.is_none() || shown.as_deref() != committer.sequence() {
            return Ok(());
        }
        let now = self.now();
        match std::mem::replace(&mut self.role, Role::Standby) {
            Role::Settling(committer, happened, _) => {
                if happened {
                    self.engine.committed(snapshot, now);
                }
                self.role = Role::Leading(committer);
            }
            Role::Arriving(committer, _) => {
                self.check_foreign(snapshot)?;
                self.engine.promote(snapshot, self.options.adopt, now)?;
                self.progress(&self.sb.snapshot());
                northd::set_probe_interval(&self.nb);
                self.northd = Northd::start(&self.options);
                self.metrics.leader.set(1);
                tracing::info!(sequence = committer.sequence(), "leading");
                self.role = Role::Leading(committer);
            }
            other => self.role = other,
        }
        Ok(())
    }

    /// Somebody else's network is not taken over unless we are told to.
    fn check_foreign(&self, snapshot: &Snapshot) -> Result<(), ControllerError> {
        let foreign = topology::adopt::foreign_network(snapshot).filter(|_| !self.options.adopt);
        foreign.map_or(Ok(()), |row| Err(ControllerError::ForeignNetwork(row)))
    }

    fn lease(&mut self, news: LeaseNews) -> Result<(), ControllerError> {
        match news {
            LeaseNews::Acquired => {
                // Before anything is written, the sequence value included.
                self.check_foreign(&self.nb.snapshot())?;
                self.takeovers += 1;
                // Never used before: by this process, or by another one at the same nanosecond.
                let writer = format!(
                    "{}/{}/{}",
                    self.options.election.lease.identity,
                    kubernetes::timestamp_nanoseconds(),
                    self.takeovers
                );
                tracing::info!(writer, "the lease is ours; taking over the database");
                self.writer = writer.clone();
                self.role = Role::TakingOver(Box::pin(take_over(self.nb.clone(), writer)));
                self.lock.want(Want::Hold);
            }
            // Why was told when it was decided.
            LeaseNews::Lost(LossReason::Stopped) => {
                tracing::info!("the lease is given up");
                self.demote();
            }
            LeaseNews::Lost(reason) => {
                tracing::warn!(%reason, "the lease is not ours any more");
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
        let eligible = *self.campaign.eligible.borrow();
        self.lock.want(if eligible { Want::Queue } else { Want::Nothing });
        self.northd = None;
        self.metrics.leader.set(0);
    }

    fn resign(&mut self, why: &str) {
        tracing::error!(why, "giving up the lease: whoever leads must be able to commit");
        self.step_down();
    }

    fn step_down(&mut self) {
        self.demote();
        self.campaign.resign.notify_one();
    }

    fn took_over(&mut self, over: Result<Committer, String>) {
        match over {
            Ok(committer) => self.role = Role::Arriving(committer, Instant::now()),
            Err(why) => self.resign(&why),
        }
    }

    fn judged(&mut self, committer: Committer, verdict: Verdict) {
        let now = self.now();
        self.role = match verdict {
            Verdict::Happened => {
                self.metrics.commits.inc();
                Role::Settling(committer, true, Instant::now())
            }
            Verdict::DidNot => {
                self.authorship.never_happened();
                self.engine.abandoned();
                Role::Settling(committer, false, Instant::now())
            }
            Verdict::Refused { owner, why } => {
                self.metrics.refused.inc();
                self.authorship.never_happened();
                tracing::warn!(owner, why, "the northbound database refused a transaction");
                self.engine.refused(owner.as_deref(), &why, now);
                Role::Leading(committer)
            }
            Verdict::Unknown(why) => return self.resign(&why),
            Verdict::Deposed(why) => {
                tracing::warn!(why, "giving up the lease: the database is not ours any more");
                return self.step_down();
            }
        };
    }

    /// Somebody changed the northbound database: perhaps rows of ours.
    fn database_changed(&mut self, changes: &Changes) {
        if !self.engine.is_leading() {
            return;
        }
        // Whoever took over did so in the database first: an idle leader learns of it here, without the API.
        if let Some(writer) = databases::writer(&changes.snapshot).filter(|writer| *writer != self.writer) {
            tracing::warn!(writer, "another controller has taken over the northbound database; stepping down");
            return self.step_down();
        }
        let (foreign, doubtful) = self.authorship.judge(changes, self.session());
        let now = self.now();
        self.engine.disturbed(foreign.owners, foreign.rows, now);
        self.engine.doubted(doubtful.owners, doubtful.rows, now);
    }

    /// The session with the northbound database; none if there is none.
    fn session(&self) -> Option<u64> {
        let status = self.nb.status();
        let status = status.borrow();
        status.connected.then_some(status.sessions)
    }

    fn saw(&mut self, seen: Option<Seen>) -> Result<(), ControllerError> {
        let now = self.now();
        match seen {
            Some(Seen::Objects(objects)) => {
                let listed = objects.iter().any(|observed| matches!(observed, Observed::Listed(_)));
                for observed in objects {
                    self.engine.observe(observed, now);
                }
                if listed {
                    self.weigh_in();
                }
            }
            Some(Seen::Trouble(kind, Some(why))) => {
                self.conditions.objects.not_ready(format!("{kind:?}s cannot be watched: {why}"));
            }
            Some(Seen::Trouble(_, None)) => self.weigh_in(),
            Some(Seen::Ended(plural)) => return Err(ControllerError::WatchEnded(plural)),
            None => return Err(ControllerError::WatchEnded("objects")),
        }
        Ok(())
    }

    /// Whether we could lead.
    fn weigh_in(&mut self) {
        let complete = self.engine.is_complete();
        if complete {
            self.conditions.objects.ready();
        }
        let connected = self.nb.status().borrow().connected;
        let may = complete && connected && self.featured;
        let changed = self.campaign.eligible.send_if_modified(|eligible| std::mem::replace(eligible, may) != may);
        if matches!(self.role, Role::Standby) {
            self.lock.want(if may { Want::Queue } else { Want::Nothing });
        }
        if changed && may && !self.engine.is_leading() {
            tracing::info!("standing by: all is listed, the database is there; waiting for the lease");
        }
    }

    fn look_at_database(&mut self) -> Result<(), ControllerError> {
        let status = self.nb.status().borrow().clone();
        if self.conditions.northbound.look(&status) {
            self.without_nb = None;
            self.conditions.hope.beat();
        } else {
            self.without_nb.get_or_insert_with(Instant::now);
        }
        // At once, and not with the next look around: who starts shall not wait a second for nothing.
        if !self.featured
            && status.connected
            && let Some(features) = databases::features(&self.nb)?
        {
            let mut settings = self.options.cluster.clone();
            settings.features = features;
            self.engine.set_settings(settings);
            self.featured = true;
        }
        self.weigh_in();
        Ok(())
    }

    /// What is looked at once a second.
    fn look_around(&mut self) -> Result<(), ControllerError> {
        self.conditions.beat.beat();
        tracing::debug!(
            complete = self.engine.is_complete(),
            featured = self.featured,
            connected = self.without_nb.is_none(),
            backlog = self.engine.backlog(),
            "looking around"
        );
        if self.without_nb.is_none() {
            self.conditions.hope.beat();
        }
        if !self.featured {
            self.look_at_database()?;
        }
        let leads = !matches!(self.role, Role::Standby | Role::TakingOver(_));
        let alone = self.without_nb.is_some_and(|since| since.elapsed() > COMMIT_DEADLINE);
        let stuck = self.role.hangs() || leads && alone;
        if stuck {
            let last = self.nb.status().borrow().last_error.clone().unwrap_or_default();
            self.resign(&format!("the northbound database cannot be reached: {last}"));
        }
        let now = self.now();
        let replacements = self.nb.status().borrow().replacements + self.sb.status().borrow().replacements;
        let visible = self.engine.is_leading() && self.sb.status().borrow().connected;
        let behind = self.engine.northd_behind_since().map(|since| now.saturating_sub(since));
        let behind = visible.then(|| behind.unwrap_or_default());
        self.northd_watch.look(behind, replacements, &self.options.election.lease, &self.outlet);
        self.outlet.repairs.flush();
        let renewed = *self.campaign.renewals.borrow();
        self.metrics.lease_unrenewed.set(renewed.map_or(0.0, |renewed| renewed.elapsed().as_secs_f64()));
        self.node_watch.look(&self.engine, &self.outlet, now);
        self.metrics.survey(&self.engine, now);
        Ok(())
    }
}
