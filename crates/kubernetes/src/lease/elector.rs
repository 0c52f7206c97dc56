//! Acquires, holds and releases a Lease. Driven by the caller: it has no task.

use std::convert::Infallible;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};

use crate::api::Api;
use crate::error::ApiError;
use crate::lease::decision::{Candidate, LossReason, Step, still_ours};
use crate::lease::record::Record;
use crate::lease::settings::{LeaseSettings, LeaseSettingsError};
use crate::resource::Resource;
use crate::watch::{Observed, Watch, watch as watch_resource};

const GROUP: &str = "/apis/coordination.k8s.io/v1";
/// Attempts to release a Lease that other clients keep changing.
const RELEASE_ATTEMPTS: u32 = 5;

/// What is known about the Lease: evidence for the readiness of a standby.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LeaseAccess {
    /// Neither read nor written yet.
    #[default]
    Unknown,
    /// The last operation succeeded, and its watch works.
    Works,
    /// Its watch or the last operation failed; why.
    Failed(String),
}

impl LeaseAccess {
    /// Reports the present state and each change. Never returns, so that it can run beside [`Elector::acquire`].
    pub async fn follow(mut access: watch::Receiver<Self>, mut report: impl FnMut(&Self)) -> Infallible {
        loop {
            report(&access.borrow_and_update());
            if access.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Why a standby could not take over.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Unknown => Some("the Lease was not read yet".into()),
            Self::Works => None,
            Self::Failed(why) => Some(format!("the Lease cannot be used, so this instance could not take over: {why}")),
        }
    }
}

/// Candidate for a Lease, or its holder.
///
/// A holder that cannot renew stays the holder until it sees another one: a slow or unreachable API server does not end
/// leadership. Two processes may therefore believe that they hold it, so their writes must be fenced.
#[derive(Debug)]
pub struct Elector {
    api: Api,
    settings: LeaseSettings,
    held: Option<Held>,
    /// Another process was seen with our identity: a Lease with it is no longer assumed to be ours.
    duplicate_identity: bool,
    /// The last logged problem, so that each is logged once.
    logged: String,
    renewals: watch::Sender<Option<Instant>>,
    access: watch::Sender<LeaseAccess>,
    takeover_delay: Duration,
}

#[derive(Debug)]
struct Held {
    /// Last known state on the server.
    record: Record,
    /// When the last successful renewal was *sent*: no other process saw it earlier.
    renewed: Instant,
    /// Renew times that were written since then, or may have been.
    ours: Vec<String>,
}

impl Elector {
    /// Checks the settings; sends no request.
    pub fn new(api: &Api, settings: LeaseSettings) -> Result<Self, LeaseSettingsError> {
        settings.check()?;
        let api = api.with_timeout(settings.renew_deadline);
        let renewals = watch::Sender::new(None);
        Ok(Self {
            api,
            settings,
            held: None,
            duplicate_identity: false,
            logged: String::new(),
            renewals,
            access: watch::Sender::default(),
            takeover_delay: Duration::ZERO,
        })
    }

    /// Time of the last renewal; none while the Lease is not held.
    pub fn renewals(&self) -> watch::Receiver<Option<Instant>> {
        self.renewals.subscribe()
    }

    /// Whether the Lease can be used, while this is a candidate or the holder.
    pub fn access(&self) -> watch::Receiver<LeaseAccess> {
        self.access.subscribe()
    }

    /// How much longer than other candidates this one waits for a Lease without a holder: it is less suitable than they are.
    /// Takes effect with the next [`Elector::acquire`].
    pub fn set_takeover_delay(&mut self, takeover_delay: Duration) {
        self.takeover_delay = takeover_delay;
    }

    /// Waits until the Lease is held. Failures are logged and retried.
    ///
    /// Cancel-safe: a Lease that was just taken is taken again at once by the next call.
    pub async fn acquire(&mut self) {
        self.acquire_with_witness(watch::channel(None).1).await;
    }

    /// As [`Elector::acquire`], with a second witness: `gone` is the time since which the current holder is known to be
    /// gone. Such a holder is replaced before its Lease expires.
    pub async fn acquire_with_witness(&mut self, mut gone: watch::Receiver<Option<Instant>>) {
        self.lose();
        let LeaseSettings { identity, duration, retry_period, .. } = &self.settings;
        let candidate = Candidate::new(identity, *duration, *retry_period, self.duplicate_identity);
        let mut candidate = candidate.with_takeover_delay(self.takeover_delay);
        let mut latest: Option<Record> = None;
        let mut lease = self.watch();
        loop {
            let absent = *gone.borrow_and_update();
            let observed = match candidate.step(Instant::now(), absent) {
                Step::Read => lease.next().await,
                Step::Wait(left) => tokio::select! {
                    observed = lease.next() => observed,
                    () = changed(&mut gone) => continue,
                    () = sleep(left) => continue,
                },
                Step::TakeExpired => {
                    if let Some(now) = self.read_again(&mut candidate).await {
                        latest = now;
                    }
                    if candidate.step(Instant::now(), absent) != Step::TakeExpired {
                        continue;
                    }
                    if self.take(latest.as_ref()).await.is_ok() {
                        return;
                    }
                    candidate.restart_duration(Instant::now());
                    continue;
                }
                Step::Create | Step::Take => {
                    let Err(pause) = self.take(latest.as_ref()).await else { return };
                    // Read the faster process's Lease; the watch may lag or fail.
                    sleep(pause).await;
                    if let Ok(now) = self.read().await {
                        self.observe(&mut candidate, now.as_ref());
                        latest = now;
                    }
                    continue;
                }
            };
            match observed {
                Some(Observed::Relisting) => latest = None,
                Some(Observed::Upsert(record)) => {
                    self.usable(&mut candidate);
                    self.observe(&mut candidate, Some(&record));
                    latest = Some(record);
                }
                Some(Observed::Deleted(_)) => {
                    self.usable(&mut candidate);
                    self.observe(&mut candidate, None);
                    latest = None;
                }
                Some(Observed::Listed) => {
                    self.usable(&mut candidate);
                    if latest.is_none() {
                        self.observe(&mut candidate, None);
                    }
                }
                Some(Observed::Resumed) => self.usable(&mut candidate),
                Some(Observed::Failed(reason) | Observed::Malformed { error: reason, .. }) => self.failed(reason),
                Some(Observed::Absent) => self.failed(format!("{} has no Leases ({GROUP})", self.api.server())),
                None => {
                    sleep(self.settings.retry_period).await;
                    lease = self.watch();
                }
            }
        }
    }

    /// Renews the Lease until another process has it or `stop` is ready; failed renewals are retried. The Lease is lost
    /// on return, except after [`LossReason::Stopped`].
    pub async fn hold(&mut self, stop: impl Future<Output = ()>) -> LossReason {
        let mut stop = pin!(stop);
        let mut next = match &self.held {
            Some(held) => held.renewed + self.settings.retry_period,
            None => return LossReason::NotHeld,
        };
        loop {
            let renewal = async {
                sleep_until(next.into()).await;
                self.renew().await
            };
            // A renewal that is cancelled here may take effect; it is recorded in `ours`.
            let renewed = tokio::select! {
                biased;
                () = &mut stop => return LossReason::Stopped,
                renewed = renewal => renewed,
            };
            match renewed {
                Ok(()) => drop(self.works()),
                Err(RenewError::Lost(reason)) => {
                    self.duplicate_identity |= reason == LossReason::DuplicateIdentity;
                    self.lose();
                    return reason;
                }
                Err(RenewError::Failed(error)) => {
                    self.failed(format!("renewal failed; leading until another process takes the Lease: {error}"));
                }
            }
            next = Instant::now() + self.settings.retry_period;
        }
    }

    /// Releases the Lease, so that another process can take it at once. No-op if it is not held.
    pub async fn release(&mut self) -> Result<(), ApiError> {
        let Some(mut held) = self.held.take() else { return Ok(()) };
        self.renewals.send_replace(None);
        for _ in 0..RELEASE_ATTEMPTS {
            match self.api.put(&self.path(), held.record.released().body()).await {
                Ok(_) | Err(ApiError::NotFound(_)) => return Ok(()),
                Err(ApiError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
            let now = self.read().await?;
            match now {
                Some(record) if still_ours(Some(&record), &self.settings.identity, &held.ours).is_ok() => {
                    held.record = record;
                }
                _ => return Ok(()),
            }
        }
        Err(ApiError::Conflict(format!("{} changes too often to be released", self.path())))
    }

    /// Whether the Lease is held, as far as is known.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn lose(&mut self) {
        self.held = None;
        self.renewals.send_replace(None);
    }

    /// Reads an expired Lease once more. If the API server is slow, it is unknown whether the holder renews, and the
    /// holder may be affected as well.
    async fn read_again(&mut self, candidate: &mut Candidate) -> Option<Option<Record>> {
        let problem = match timeout(self.settings.retry_period, self.read()).await {
            Ok(Ok(now)) => {
                self.usable(candidate);
                self.observe(candidate, now.as_ref());
                return Some(now);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {:?}", self.settings.retry_period),
        };
        candidate.restart_duration(Instant::now());
        self.failed(format!(
            "the Lease looks expired, but the API server is slow; waiting for its duration again: {problem}"
        ));
        None
    }

    fn watch(&self) -> Watch<Record> {
        let LeaseSettings { namespace, name, .. } = &self.settings;
        let resource = Resource::inside(GROUP, namespace, "leases").fields(&format!("metadata.name={name}"));
        watch_resource(&self.api, resource, Record::read)
    }

    fn observe(&mut self, candidate: &mut Candidate, record: Option<&Record>) {
        if let Some(error) = candidate.observe(record, Instant::now()) {
            tracing::warn!(lease = self.name(), error, "cannot use the Lease's duration; assuming another one");
        }
    }

    /// Records that a candidate can use the Lease. After an outage the Lease may look expired although its holder lives: the
    /// holder could not renew it either. Its duration starts over, so that the holder has time to.
    fn usable(&mut self, candidate: &mut Candidate) {
        if self.works() {
            candidate.restart_duration(Instant::now());
        }
    }

    /// Tries to become the holder, of this Lease or of a new one; the error is the delay before a retry.
    async fn take(&mut self, record: Option<&Record>) -> Result<(), Duration> {
        let LeaseSettings { namespace, name, identity, duration, .. } = &self.settings;
        let sent = Instant::now();
        let wanted = match record {
            Some(record) => record.taken(identity, *duration),
            None => Record::first(namespace, name, identity, *duration),
        };
        let answer = match record {
            Some(_) => self.api.put(&self.path(), wanted.body()).await,
            None => self.api.post(&format!("{GROUP}/namespaces/{namespace}/leases"), wanted.body()).await,
        };
        let problem = match answer.and_then(|answer| read(&answer)) {
            Ok(record) => {
                tracing::info!(lease = self.name(), identity, "Lease acquired");
                let ours = vec![record.renew_time().to_owned()];
                self.held = Some(Held { record, renewed: sent, ours });
                self.renewals.send_replace(Some(sent));
                self.works();
                return Ok(());
            }
            Err(ApiError::Conflict(_) | ApiError::AlreadyExists(_)) => return Err(self.settings.retry_period / 10),
            Err(ApiError::NotFound(_)) if record.is_some() => return Err(self.settings.retry_period / 10),
            Err(ApiError::NotFound(_)) => format!("namespace {namespace} does not exist; create it"),
            Err(error) => format!("cannot take the Lease: {error}"),
        };
        self.failed(problem);
        Err(self.settings.retry_period)
    }

    async fn renew(&mut self) -> Result<(), RenewError> {
        loop {
            let path = self.path();
            let Some(held) = &mut self.held else { return Err(RenewError::Lost(LossReason::NotHeld)) };
            let sent = Instant::now();
            let wanted = held.record.renewed(&self.settings.identity, self.settings.duration);
            held.ours.push(wanted.renew_time().to_owned());
            match self.api.put(&path, wanted.body()).await.and_then(|answer| read(&answer)) {
                Ok(record) => {
                    let ours = vec![record.renew_time().to_owned()];
                    *held = Held { record, renewed: sent, ours };
                    self.renewals.send_replace(Some(sent));
                    return Ok(());
                }
                Err(ApiError::Conflict(_)) => {}
                Err(ApiError::NotFound(_)) => return Err(RenewError::Lost(LossReason::Deleted)),
                Err(error) => return Err(RenewError::Failed(error)),
            }
            let now = self.read().await.map_err(RenewError::Failed)?;
            let Some(held) = &mut self.held else { return Err(RenewError::Lost(LossReason::NotHeld)) };
            still_ours(now.as_ref(), &self.settings.identity, &held.ours).map_err(RenewError::Lost)?;
            if let Some(record) = now {
                held.record = record;
            }
        }
    }

    /// The current Lease; `None` if it does not exist.
    async fn read(&self) -> Result<Option<Record>, ApiError> {
        match self.api.get(&self.path()).await {
            Ok(answer) => read(&answer).map(Some),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// For logs: `namespace/name`.
    fn name(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    fn path(&self) -> String {
        format!("{GROUP}/namespaces/{}/leases/{}", self.settings.namespace, self.settings.name)
    }

    /// Logs a problem if it changed.
    fn failed(&mut self, error: String) {
        if error != self.logged {
            tracing::warn!(lease = self.name(), error, "Lease operation failed; retrying");
            self.access.send_replace(LeaseAccess::Failed(error.clone()));
            self.logged = error;
        }
    }

    /// Records that the Lease can be used; returns whether that follows a failure.
    fn works(&mut self) -> bool {
        let recovered = !self.logged.is_empty();
        if recovered {
            tracing::info!(lease = self.name(), "Lease operations work again");
            self.logged.clear();
        }
        self.access.send_if_modified(|known| std::mem::replace(known, LeaseAccess::Works) != LeaseAccess::Works);
        recovered
    }
}

/// Why a renewal failed.
enum RenewError {
    Lost(LossReason),
    Failed(ApiError),
}

/// Waits for a change of the witness; never returns if it was dropped.
async fn changed(gone: &mut watch::Receiver<Option<Instant>>) {
    if gone.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn read(answer: &[u8]) -> Result<Record, ApiError> {
    let text = std::str::from_utf8(answer).map_err(|error| ApiError::Unreadable(error.to_string()))?;
    Record::read(text).map_err(ApiError::Unreadable)
}
