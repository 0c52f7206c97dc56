//! The role `ovnkube pki serve`: one of several processes holds a Lease and carries out the plan.
//!
//! ```text
//!   every few seconds, for both CAs: read certificate, bundle, CA ─▶ plan ─▶ check the clock ─▶ apply ─▶ one write ─▶ again, until nothing is due
//! ```
//!
//! Meanwhile it serves the requests of nodes (module `chassis`).
//!
//! Two processes may believe that they hold the Lease. Each write carries the resourceVersion that was read, so the slower one
//! fails and reads again.

mod chassis;
mod clock;
mod metrics;
mod mirror;
mod notices;
mod requests;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kubernetes::{Api, ApiError, ConfigError, Elector, LeaseAccess, LeaseSettings, LeaseSettingsError};
use telemetry::{Condition, Heartbeat, Telemetry};
use tokio::time::timeout_at;

use crate::apply::apply;
use crate::chassis::Claim;
use crate::domain::{Domain, Object};
use crate::findings::Finding;
use crate::issue::IssueError;
use crate::plan::{Plan, plan};
use crate::policy::{Policy, PolicyError};
use crate::seen::Seen;
use chassis::{ChassisSigner, Context, LookupError, ServeError};
use clock::ClockError;
use metrics::Metrics;
use notices::Notices;
pub use store::{Objects, ReadError, Store};

/// Name of the Lease.
pub const LEASE: &str = "ovnkube-pki";
/// Longest interval between reconciliations.
const PERIOD: Duration = Duration::from_secs(10);
/// Limit of one call of the API.
const API_LIMIT: Duration = Duration::from_secs(10);
/// A reconciliation makes at most this many calls, each within its limit.
const STALLED_AFTER: Duration = Duration::from_secs(300);
/// Writes of one reconciliation; a rotation needs four.
const MOST_STEPS: u32 = 12;
/// A signer whose clock is wrong lets others have the Lease for this long.
const STAND_BACK: Duration = Duration::from_secs(60);

/// Options of the role.
#[derive(Debug, Clone)]
pub struct SignerOptions {
    /// The kubeconfig; none for that of the environment, or for the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the Secrets, the ConfigMap and the Lease.
    pub namespace: String,
    /// Identity in the Lease, and instance in Events.
    pub identity: String,
    /// Lifetimes.
    pub policy: Policy,
}

/// Why the role cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// The lifetimes do not fit together.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The API cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Invalid namespace or identity.
    #[error(transparent)]
    Lease(#[from] LeaseSettingsError),
}

/// Why a reconciliation failed.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error("cannot read the certificates: {0}")]
    Read(#[from] ReadError),
    #[error("cannot write {object}: {error}")]
    Write { object: Object, error: ApiError },
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Clock(#[from] ClockError),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("cannot serve the requests of nodes: {0}")]
    Serve(#[from] ServeError),
}

/// Runs the role until shutdown is requested.
pub async fn run(options: SignerOptions, telemetry: &Telemetry) -> Result<(), SignerError> {
    options.policy.check()?;
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?.with_timeout(API_LIMIT);
    let mut elector = Elector::new(&api, LeaseSettings::new(&options.namespace, LEASE, &options.identity))?;
    let mut signer = Signer {
        api: api.clone(),
        namespace: options.namespace.clone(),
        store: Store::new(api.clone(), &options.namespace),
        domains: BTreeMap::new(),
        condition: telemetry.health().condition("certificates"),
        heartbeat: telemetry.health().heartbeat("reconciliation", STALLED_AFTER),
        metrics: Metrics::new(telemetry),
        notices: Notices::new(&api, &options.namespace, &options.identity),
        failure: None,
        policy: options.policy,
    };
    let shutdown = telemetry.shutdown();
    loop {
        signer.stand_by();
        let access = elector.access();
        tokio::select! {
            () = elector.acquire() => {}
            never = LeaseAccess::follow(access, |access| signer.show_access(access)) => match never {},
            () = shutdown.wait() => return Ok(()),
        }
        elector.set_takeover_delay(Duration::ZERO);
        signer.metrics.set_leader(true);
        tokio::select! {
            reason = elector.hold(shutdown.wait()) => tracing::info!(%reason, "stopped signing: this instance no longer leads"),
            () = signer.lead() => elector.set_takeover_delay(STAND_BACK),
        }
        if let Err(error) = elector.release().await {
            tracing::warn!(%error, "cannot release the Lease; it expires by itself");
        }
        if shutdown.requested() {
            return Ok(());
        }
    }
}

struct Signer {
    api: Api,
    namespace: String,
    policy: Policy,
    store: Store,
    domains: BTreeMap<Domain, DomainState>,
    condition: Condition,
    heartbeat: Heartbeat,
    metrics: Metrics,
    notices: Notices,
    /// The failure that was logged last.
    failure: Option<String>,
}

/// What the leader knows of one CA.
#[derive(Debug, Default)]
struct DomainState {
    seen: Seen,
    findings: Vec<Finding>,
    /// Why this instance is not ready.
    problem: Option<String>,
    /// What the rotation waits for, as logged last.
    waiting: Option<&'static str>,
}

impl Signer {
    /// Others may lead meanwhile, so what was seen says nothing.
    fn stand_by(&mut self) {
        self.domains.clear();
        self.metrics.set_leader(false);
        self.metrics.clear();
        self.heartbeat.pause();
    }

    /// A standby is ready while it could take over.
    fn show_access(&self, access: &LeaseAccess) {
        match access.problem() {
            None => self.condition.ready(),
            Some(problem) => self.condition.not_ready(problem),
        }
    }

    /// Reconciles for ever; returns if the clock of this machine is wrong.
    async fn lead(&mut self) {
        let period = PERIOD.min(self.policy.distribution_delay / 4).max(Duration::from_secs(1));
        let mut chassis = ChassisSigner::start(&self.api, &self.namespace);
        loop {
            self.heartbeat.beat();
            let result = self.reconcile_all(&mut chassis).await;
            let is_well = result.is_ok();
            if self.is_clock_wrong(result) {
                return;
            }
            if is_well && self.failure.take().is_some() {
                tracing::info!("certificates are reconciled again");
            }
            let next = tokio::time::Instant::now() + period;
            while let Ok(is_concerned) = timeout_at(next, chassis.changed()).await {
                self.heartbeat.beat();
                if !is_concerned {
                    continue;
                }
                let result = self.serve(&mut chassis).await;
                if self.is_clock_wrong(result) {
                    return;
                }
            }
        }
    }

    /// Reports a failure.
    fn is_clock_wrong(&mut self, result: Result<(), ReconcileError>) -> bool {
        let Err(error) = result else { return false };
        let text = error.to_string();
        self.metrics.failed();
        self.condition.not_ready(text.clone());
        if self.failure.as_ref() != Some(&text) {
            tracing::warn!(error = text, "cannot reconcile the certificates; retrying");
        }
        let is_clock_wrong = matches!(error, ReconcileError::Clock(ClockError::Wrong { .. }));
        if is_clock_wrong {
            self.notices.clock(&text);
        }
        self.failure = Some(text);
        is_clock_wrong
    }

    /// A failure of one CA does not prevent the other's renewal.
    async fn reconcile_all(&mut self, chassis: &mut ChassisSigner) -> Result<(), ReconcileError> {
        let mut results = Vec::new();
        for domain in Domain::ALL {
            results.push(self.reconcile(domain).await);
        }
        self.metrics.problems(self.domains.values().flat_map(|state| &state.findings));
        results.into_iter().collect::<Result<(), _>>()?;
        match self.domains.values().find_map(|state| state.problem.as_ref()) {
            Some(problem) => self.condition.not_ready(problem.clone()),
            None => self.condition.ready(),
        }
        // Nodes get certificates also while a deleted one's cannot be revoked.
        let pruned = self.prune(chassis).await;
        self.serve(chassis).await?;
        pruned
    }

    async fn reconcile(&mut self, domain: Domain) -> Result<(), ReconcileError> {
        for _ in 0..MOST_STEPS {
            let (objects, plan, now) = self.plan(domain).await?;
            self.show(&plan, &objects, now);
            self.notices.findings(&plan.findings, &objects);
            let Some(step) = plan.step else { return Ok(()) };
            clock::check(&self.store).await?;
            let Some(write) = apply(&step, &self.policy, &objects.observed, now)? else { return Ok(()) };
            match self.store.write(&write, &objects).await {
                Ok(reference) => {
                    self.metrics.done(domain, &step);
                    self.notices.step(&step, reference);
                }
                Err(ApiError::Conflict(error) | ApiError::AlreadyExists(error)) => {
                    tracing::info!(error, "another client changed the certificates; reading them again");
                }
                Err(error) => return Err(ReconcileError::Write { object: objects.object_of(&write), error }),
            }
        }
        Ok(())
    }

    async fn plan(&mut self, domain: Domain) -> Result<(Objects, Plan, Timestamp), ReconcileError> {
        let objects = self.store.read(domain).await?;
        let ages = self.domains.entry(domain).or_default().seen.observe(&objects.observed, Instant::now());
        let now = whole_seconds(Timestamp::now());
        let plan = plan(&self.policy, &objects.observed, &ages, now);
        Ok((objects, plan, now))
    }

    /// Answers the requests of nodes that can be answered.
    async fn serve(&mut self, chassis: &mut ChassisSigner) -> Result<(), ReconcileError> {
        while chassis.has_work() {
            self.heartbeat.beat();
            let (objects, plan, now) = self.plan(Domain::Nodes).await?;
            let Some(set) = objects.observed.authorities.present().filter(|_| plan.may_issue) else {
                chassis
                    .wait(&plan.waiting.map_or("the nodes' CA cannot sign yet".into(), |waiting| waiting.to_string()));
                break;
            };
            clock::check(&self.store).await?;
            let Self { policy, store, metrics, notices, .. } = self;
            let context = Context { policy, store, metrics, notices };
            if !chassis.serve(&context, &set.signing, &objects, now).await? {
                break;
            }
        }
        self.metrics.chassis_open(chassis.open());
        Ok(())
    }

    /// Revokes the certificates of deleted Nodes, and removes from the record what is revoked or has expired.
    async fn prune(&mut self, chassis: &mut ChassisSigner) -> Result<(), ReconcileError> {
        let mut objects = match self.store.read(Domain::Nodes).await {
            Ok(objects) => objects,
            Err(error) => {
                chassis.interrupted();
                return Err(error.into());
            }
        };
        self.metrics.show_record(&objects.record(), &objects.revoked());
        let deleted = chassis.deleted(&objects.record(), self.policy.revoke_deleted_after).await?;
        let now = whole_seconds(Timestamp::now());
        if !objects.record().unrevoked(&deleted, &objects.revoked(), now).is_empty() {
            if !self.revoke(&deleted, &objects, now).await? {
                return Ok(());
            }
            objects = self.store.read(Domain::Nodes).await?;
            self.metrics.show_record(&objects.record(), &objects.revoked());
        }
        let mut record = objects.record();
        if !record.prune(&deleted, &objects.revoked(), now) {
            return Ok(());
        }
        clock::check(&self.store).await?;
        match self.store.write_record(&record, &objects).await {
            Ok(_) | Err(ApiError::Conflict(_)) => Ok(()),
            Err(error) => Err(ReconcileError::Write { object: Object::ChassisConfigMap, error }),
        }
    }

    /// Returns whether the certificates are revoked; not if another client changed the list meanwhile.
    async fn revoke(
        &self,
        deleted: &BTreeSet<String>,
        objects: &Objects,
        now: Timestamp,
    ) -> Result<bool, ReconcileError> {
        let (record, object) = (objects.record(), Object::NodeCaConfigMap);
        let claims = record.unrevoked(deleted, &objects.revoked(), now);
        let of = |(chassis, claim): &(&str, Claim)| {
            let about = format!("deleted node {}, chassis {chassis}", claim.node);
            let certificates = claim.certificates.iter().map(move |one| (one.clone(), about.clone()));
            certificates.collect::<Vec<_>>()
        };
        let certificates: Vec<_> = claims.iter().flat_map(of).collect();
        clock::check(&self.store).await?;
        match self.store.revoke(&certificates, objects).await {
            Ok(()) => {}
            Err(ApiError::Conflict(_) | ApiError::AlreadyExists(_)) => return Ok(false),
            Err(error) => return Err(ReconcileError::Write { object, error }),
        }
        for (chassis, claim) in &claims {
            self.metrics.chassis_revoked(claim.certificates.len());
            self.notices.chassis_revoked(chassis, claim);
        }
        Ok(true)
    }

    fn show(&mut self, plan: &Plan, objects: &Objects, now: Timestamp) {
        let observed = &objects.observed;
        let domain = observed.domain();
        self.metrics.show(&self.policy, observed);
        let blocking = plan.findings.iter().find(|finding| finding.kind.blocks());
        let problem = match blocking {
            Some(finding) => Some(format!("{}: {}", finding.object, finding.message)),
            None if domain == Domain::Nodes || observed.leaf_is_accepted(now) => None,
            None => {
                let waiting = plan.waiting.map(|waiting| waiting.to_string());
                Some(waiting.unwrap_or("the certificate is not issued yet".into()))
            }
        };
        let state = self.domains.entry(domain).or_default();
        state.findings.clone_from(&plan.findings);
        state.problem = problem;
        let what = plan.waiting.map(|waiting| waiting.what);
        if what != state.waiting
            && let Some(waiting) = plan.waiting
        {
            tracing::info!(object = %domain.secret(), reason = %waiting, "rotation waits");
        }
        state.waiting = what;
    }
}

/// Certificates have whole seconds, too.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
