//! The role `ovnkube pki serve`: one of several processes holds a Lease and carries out the plan.
//!
//! ```text
//!   every few seconds: read certificate, bundle, CA ─▶ plan ─▶ check the clock ─▶ apply ─▶ one write ─▶ again, until nothing is due
//! ```
//!
//! Two processes may believe that they hold the Lease. Each write carries the resourceVersion that was read, so the slower one
//! fails and reads again.

mod clock;
mod metrics;
mod notices;
mod store;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kubernetes::{Api, ApiError, ConfigError, Elector, LeaseAccess, LeaseSettings, LeaseSettingsError};
use telemetry::{Condition, Heartbeat, Telemetry};
use tokio::time::sleep;

use crate::apply::apply;
use crate::issue::IssueError;
use crate::plan::{Plan, Step, plan};
use crate::policy::{Policy, PolicyError};
use crate::seen::Seen;
use crate::stored::Observed;
use clock::ClockError;
use metrics::Metrics;
use notices::Notices;
pub use store::{ReadError, Store};

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
    Write { object: &'static str, error: ApiError },
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Clock(#[from] ClockError),
}

/// Runs the role until shutdown is requested.
pub async fn run(options: SignerOptions, telemetry: &Telemetry) -> Result<(), SignerError> {
    options.policy.check()?;
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?.with_timeout(API_LIMIT);
    let mut elector = Elector::new(&api, LeaseSettings::new(&options.namespace, LEASE, &options.identity))?;
    let mut signer = Signer {
        store: Store::new(api.clone(), &options.namespace),
        seen: Seen::default(),
        condition: telemetry.health().condition("certificates"),
        heartbeat: telemetry.health().heartbeat("reconciliation", STALLED_AFTER),
        metrics: Metrics::new(telemetry),
        notices: Notices::new(&api, &options.namespace, &options.identity),
        failure: None,
        waiting: None,
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
    policy: Policy,
    store: Store,
    seen: Seen,
    condition: Condition,
    heartbeat: Heartbeat,
    metrics: Metrics,
    notices: Notices,
    /// The failure that was logged last.
    failure: Option<String>,
    /// What the rotation waits for, as logged last.
    waiting: Option<&'static str>,
}

impl Signer {
    /// Others may lead meanwhile, so what was seen says nothing.
    fn stand_by(&mut self) {
        self.seen = Seen::default();
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
        loop {
            self.heartbeat.beat();
            match self.reconcile().await {
                Ok(()) => {
                    if self.failure.take().is_some() {
                        tracing::info!("certificates are reconciled again");
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    self.metrics.failed();
                    self.condition.not_ready(text.clone());
                    if self.failure.as_ref() != Some(&text) {
                        tracing::warn!(error = text, "cannot reconcile the certificates; retrying");
                    }
                    self.failure = Some(text);
                    if matches!(error, ReconcileError::Clock(ClockError::Wrong { .. })) {
                        self.notices.clock(&error.to_string());
                        return;
                    }
                }
            }
            sleep(period).await;
        }
    }

    async fn reconcile(&mut self) -> Result<(), ReconcileError> {
        for _ in 0..MOST_STEPS {
            let objects = self.store.read().await?;
            let ages = self.seen.observe(&objects.observed, Instant::now());
            let now = whole_seconds(Timestamp::now());
            let plan = plan(&self.policy, &objects.observed, &ages, now);
            self.show(&plan, &objects.observed, now);
            self.notices.findings(&plan.findings, &objects);
            let Some(step) = plan.step else { return Ok(()) };
            clock::check(&self.store).await?;
            let Some(write) = apply(&step, &self.policy, &objects.observed, now)? else { return Ok(()) };
            match self.store.write(&write, &objects).await {
                Ok(reference) => self.done(&step, reference),
                Err(ApiError::Conflict(error) | ApiError::AlreadyExists(error)) => {
                    tracing::info!(error, "another client changed the certificates; reading them again");
                }
                Err(error) => return Err(ReconcileError::Write { object: store::object_of(&write), error }),
            }
        }
        Ok(())
    }

    fn show(&mut self, plan: &Plan, observed: &Observed, now: Timestamp) {
        self.metrics.show(&self.policy, plan, observed);
        let blocking = plan.findings.iter().find(|finding| finding.kind.blocks());
        match blocking {
            Some(finding) => {
                self.condition.not_ready(format!("Secret {}: {}", crate::CA_SECRET, finding.message));
            }
            None if observed.leaf_is_accepted(now) => self.condition.ready(),
            None => {
                let waiting = plan.waiting.map(|waiting| waiting.to_string());
                self.condition.not_ready(waiting.unwrap_or("the certificate is not issued yet".into()));
            }
        }
        let what = plan.waiting.map(|waiting| waiting.what);
        if what != self.waiting
            && let Some(waiting) = plan.waiting
        {
            tracing::info!(reason = %waiting, "rotation waits");
        }
        self.waiting = what;
    }

    fn done(&mut self, step: &Step, reference: kubernetes::ObjectReference) {
        self.metrics.done(step);
        self.notices.step(step, reference);
    }
}

/// Certificates have whole seconds, too.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
