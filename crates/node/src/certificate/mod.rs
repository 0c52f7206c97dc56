//! The certificate of this node, for ovn-controller and the agent itself: requested from the signer, stored, renewed.
//!
//! ```text
//!   files · published CAs · system-id ──▶ decision::next ──▶ wait, or request a certificate because …
//!        ▲                                                            │ key and request (pki)
//!        └── files::store ◀── check ◀── certificate ◀── CertificateSigningRequest k8s.ovn.org/chassis
//! ```
//!
//! The signer approves a request for the chassis that the Node's annotation names, so the agent writes that first. A request
//! that is pending is continued as long as this process lives: the key is in its memory until it is stored with the
//! certificate. The one in effect stays until then. What is read is read again every few seconds: a certificate that expired
//! while the machine was suspended is noticed by the clock, not by a timer.

mod decision;
mod files;
mod metrics;
mod signing;
#[cfg(test)]
mod testing;
mod trust;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Retries};
use jiff::Timestamp;
use kubernetes::{Api, ApiError, Recorder};
use pki::{CHASSIS_ANNOTATION, ChassisCertificate, ChassisKey, Fingerprint};
use telemetry::Telemetry;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::node_status::{Annotations, node_event};
use crate::options::CertificateOptions;
use crate::own_node::OwnNode;
use crate::readiness::State;
use decision::{Facts, Next, Reason};
use files::CertificateDirectory;
use metrics::CertificateMetrics;
use signing::Answer;
use trust::Published;

/// Interval in which files and clock are read.
const PERIOD: Duration = Duration::from_secs(10);
/// Delays between looks at a pending request. A signer answers within milliseconds, or does not run.
const POLL: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// Delays after a call that failed or a file that could not be written.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// Delays after an answer that does not help: somebody must act.
const REFUSED: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(300));
/// Reason of the Event about an answer that does not help, and about files that cannot be written.
const FAILED: &str = "NodeCertificateFailed";

/// How far a request is.
#[derive(Debug)]
enum Progress {
    Idle,
    /// Not known to be in the API.
    Prepared(ChassisKey),
    /// In the API under this name.
    Pending(ChassisKey, String),
    /// To be stored.
    Issued(Box<ChassisCertificate>),
}

impl Progress {
    fn chassis(&self) -> Option<&str> {
        match self {
            Self::Idle => None,
            Self::Prepared(request) | Self::Pending(request, _) => Some(request.chassis()),
            Self::Issued(own) => Some(&own.chassis),
        }
    }
}

/// Why there is no progress.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot request a certificate: {0}")]
    Api(#[from] ApiError),
    #[error(
        "the signer refused a certificate for chassis {chassis}: {why}; correct that, or see the log of ovnkube-pki; the agent \
         asks again within 5 minutes"
    )]
    Refused { chassis: String, why: String },
    #[error(
        "the signer's answer cannot be used: {0}; see the log of ovnkube-pki; the agent asks again within 5 minutes"
    )]
    Answer(#[from] pki::ChassisError),
    #[error("cannot create a key: {0}")]
    Key(#[from] pki::IssueError),
    #[error(transparent)]
    Storage(#[from] files::StorageError),
}

impl Failure {
    /// Whether only people can change it, so that they should hear of it and retries need not be frequent.
    fn needs_people(&self) -> bool {
        match self {
            Self::Api(error) => !error.is_temporary(),
            Self::Storage(_) => false,
            Self::Refused { .. } | Self::Answer(_) | Self::Key(_) => true,
        }
    }
}

/// Keeps this node's certificate valid.
#[derive(Debug)]
pub(crate) struct NodeCertificate {
    api: Api,
    recorder: Recorder,
    /// Name of the Node.
    name: String,
    node: watch::Receiver<Option<Arc<OwnNode>>>,
    annotations: watch::Receiver<Annotations>,
    directory: CertificateDirectory,
    authorities: Option<PathBuf>,
    metrics: CertificateMetrics,
    state: watch::Sender<State>,
    progress: Progress,
    /// The CA that signed first when the certificate was issued.
    authority_before: Option<Fingerprint>,
    polls: Retries,
    retries: Retries,
    refusals: Retries,
    /// No request before this time.
    not_before: Instant,
    /// When the former certificate is removed from the disk: no reader is on its way to it then.
    obsolete: Option<Instant>,
}

/// What the certificate depends on, besides the configuration.
#[derive(Debug)]
pub(crate) struct CertificateInputs {
    pub(crate) api: Api,
    pub(crate) recorder: Recorder,
    /// The agent's own Node.
    pub(crate) node: watch::Receiver<Option<Arc<OwnNode>>>,
    /// Annotations that are being written to it: the chassis' name comes from Open vSwitch.
    pub(crate) annotations: watch::Receiver<Annotations>,
}

impl NodeCertificate {
    pub(crate) fn new(
        options: &CertificateOptions,
        node: &str,
        inputs: CertificateInputs,
        telemetry: &Telemetry,
    ) -> Self {
        Self {
            api: inputs.api,
            recorder: inputs.recorder,
            name: node.to_owned(),
            node: inputs.node,
            annotations: inputs.annotations,
            directory: CertificateDirectory::new(options.directory.clone()),
            authorities: options.authorities.clone(),
            metrics: CertificateMetrics::register(telemetry),
            state: watch::Sender::new(Ok(())),
            progress: Progress::Idle,
            authority_before: None,
            polls: Retries::new(POLL),
            retries: Retries::new(RETRY),
            refusals: Retries::new(REFUSED),
            not_before: Instant::now(),
            obsolete: None,
        }
    }

    /// Whether the node has a certificate that can be used, and no failure to get a better one; if not, why.
    pub(crate) fn follow(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Requests certificates as they are needed. Never returns.
    pub(crate) async fn run(mut self) {
        let directory = self.directory.clone();
        if let Err(error) = blocking(move || directory.prepare()).await {
            tracing::warn!(%error, "certificate directory cannot be prepared; retrying when a certificate is stored");
        }
        loop {
            let chassis = self.annotations.borrow_and_update().get(CHASSIS_ANNOTATION).cloned();
            let (annotated, uid) = {
                let node = self.node.borrow_and_update();
                let written = node.as_ref().and_then(|node| node.annotations.get(CHASSIS_ANNOTATION).cloned());
                (written, node.as_ref().map(|node| node.uid.clone()).unwrap_or_default())
            };
            let pause = match &chassis {
                Some(chassis) => self.check(chassis, annotated.as_ref() == Some(chassis), &uid).await,
                None => {
                    self.set(Err("its chassis (system-id in Open vSwitch) is not known yet".into()));
                    PERIOD
                }
            };
            let ended = tokio::select! {
                () = sleep(pause) => false,
                changed = self.annotations.changed() => changed.is_err(),
                changed = self.node.changed(), if annotated != chassis => changed.is_err(),
            };
            if ended {
                return;
            }
        }
    }

    /// Reads, decides and acts once; returns the longest time until that is due again.
    async fn check(&mut self, chassis: &str, annotated: bool, uid: &str) -> Duration {
        if self.progress.chassis().is_some_and(|before| before != chassis) {
            self.progress = Progress::Idle;
            self.not_before = Instant::now();
        }
        let (directory, authorities) = (self.directory.clone(), self.authorities.clone());
        let read = move || (directory.read(), authorities.map(|bundle| Published::read(&bundle)).unwrap_or_default());
        let (held, published) = blocking(read).await;
        self.metrics.show(held.as_ref().ok(), &self.name);
        let now = Timestamp::now();
        let facts = Facts {
            node: &self.name,
            chassis,
            held: held.as_ref().map_err(String::as_str),
            authority: published.authority.as_ref(),
            authority_before: self.authority_before,
            revoked: &published.revoked,
        };
        match decision::next(facts, now) {
            Next::Wait(due) => {
                self.remove_former().await;
                self.progress = Progress::Idle;
                self.set(Ok(()));
                Duration::try_from(due.duration_since(now)).map_or(PERIOD, |left| left.min(PERIOD))
            }
            Next::Request(reason) => {
                let signs = published.authority.as_ref().map(|authority| authority.fingerprint);
                self.request(chassis, annotated, &reason, signs, uid).await
            }
        }
    }

    /// Goes on with a request; returns when to come back.
    async fn request(
        &mut self,
        chassis: &str,
        annotated: bool,
        reason: &Reason,
        signs: Option<Fingerprint>,
        uid: &str,
    ) -> Duration {
        let left = self.not_before.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return left.min(PERIOD);
        }
        if !annotated {
            if !reason.is_renewal() {
                self.set(Err(format!(
                    "{reason}; it is requested once the Node has the annotation {CHASSIS_ANNOTATION}"
                )));
            }
            return PERIOD;
        }
        match self.advance(chassis, reason).await {
            Ok(true) => {
                self.authority_before = signs;
                self.obsolete = Some(Instant::now() + PERIOD);
                self.metrics.renewals.inc();
                self.retries.reset();
                self.refusals.reset();
                self.polls.reset();
                Duration::ZERO
            }
            Ok(false) => {
                self.retries.reset();
                if !reason.is_renewal() {
                    self.set(Err(format!(
                        "{reason}; a new one is requested: if this lasts, check that the signer runs (ovnkube pki status)"
                    )));
                }
                self.polls.next_delay()
            }
            Err(failure) => self.failed(&failure, reason, uid),
        }
    }

    async fn remove_former(&mut self) {
        if self.obsolete.is_none_or(|at| Instant::now() < at) {
            return;
        }
        self.obsolete = None;
        let directory = self.directory.clone();
        if let Err(error) = blocking(move || directory.remove_leftovers()).await {
            tracing::warn!(%error, "cannot remove the former certificate; retrying at the next start");
        }
    }

    /// Reports a failure; returns the delay.
    fn failed(&mut self, failure: &Failure, reason: &Reason, uid: &str) -> Duration {
        self.metrics.failures.inc();
        let pause = if failure.needs_people() { self.refusals.next_delay() } else { self.retries.next_delay() };
        self.not_before = Instant::now() + pause;
        self.polls.reset();
        let why = failure.to_string();
        let is_news = self.set(Err(format!("{reason}; {why}")));
        if is_news {
            tracing::warn!(node = self.name, %reason, error = why, "node has no new certificate; retrying in {pause:?}");
            // Without the API server an Event cannot be written either.
            if failure.needs_people() || matches!(failure, Failure::Storage(_)) {
                self.recorder.record(node_event(&self.name, uid, FAILED, &why));
            }
        }
        pause.min(PERIOD)
    }

    /// The next steps of a request, as far as they go; true if a new certificate is in effect.
    async fn advance(&mut self, chassis: &str, reason: &Reason) -> Result<bool, Failure> {
        loop {
            let progress = std::mem::replace(&mut self.progress, Progress::Idle);
            self.progress = match progress {
                Progress::Idle => Progress::Prepared(ChassisKey::create(chassis, &self.name)?),
                Progress::Prepared(request) => match signing::create(&self.api, request.pem()).await {
                    Ok(name) => {
                        tracing::info!(node = self.name, chassis, request = name, %reason, "requested a certificate");
                        Progress::Pending(request, name)
                    }
                    Err(error) => {
                        self.progress = Progress::Prepared(request);
                        return Err(error.into());
                    }
                },
                Progress::Pending(request, name) => match signing::answer(&self.api, &name).await {
                    Ok(Answer::Issued(answer)) => {
                        Progress::Issued(Box::new(request.accept(&answer, Timestamp::now())?))
                    }
                    Ok(Answer::Refused(why)) => {
                        return Err(Failure::Refused { chassis: chassis.to_owned(), why });
                    }
                    Ok(Answer::Pending) => {
                        self.progress = Progress::Pending(request, name);
                        return Ok(false);
                    }
                    // Old requests are deleted by kube-controller-manager.
                    Err(ApiError::NotFound(_)) => {
                        self.progress = Progress::Prepared(request);
                        return Ok(false);
                    }
                    Err(error) => {
                        self.progress = Progress::Pending(request, name);
                        return Err(error.into());
                    }
                },
                Progress::Issued(own) => {
                    let (directory, new) = (self.directory.clone(), own.clone());
                    if let Err(error) = blocking(move || directory.store(&new, Timestamp::now())).await {
                        self.progress = Progress::Issued(own);
                        return Err(error.into());
                    }
                    let until = format!("{:.0}", own.certificate.not_after);
                    tracing::info!(
                        node = self.name,
                        chassis,
                        until,
                        fingerprint = own.fingerprint,
                        "stored a new certificate"
                    );
                    return Ok(true);
                }
            };
        }
    }

    /// Whether that is news.
    fn set(&self, state: State) -> bool {
        self.state.send_if_modified(|before| {
            let changed = *before != state;
            *before = state;
            changed
        })
    }
}

/// Removes the certificate and its key from this host.
pub(crate) fn clean_up(options: &CertificateOptions) -> Result<(), String> {
    CertificateDirectory::new(options.directory.clone()).clean_up().map_err(|error| error.to_string())
}

/// Runs work that blocks on files beside the agent's thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime stops.
            Err(_) => std::future::pending().await,
        },
    }
}
