//! Acquires, holds and releases a lease; the caller drives it, there is no task of its own.

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
/// A lease that others touch while we release it is looked at again, but not for ever.
const RELEASE_TRIES: u32 = 5;

/// One who wants a lease, or has it.
///
/// A holder that cannot renew stays the holder until it learns that somebody else is: an API server that is slow or away
/// costs no lease. Two may therefore believe to hold it at once, and what they do must be fenced elsewhere.
#[derive(Debug)]
pub struct Elector {
    api: Api,
    settings: LeaseSettings,
    held: Option<Held>,
    /// Somebody else was seen under our identity: from then on it is nobody to be trusted.
    twin: bool,
    /// What was logged last, so that each trouble is logged once.
    logged: String,
    renewals: watch::Sender<Option<Instant>>,
}

#[derive(Debug)]
struct Held {
    /// As the server has it, as far as we know.
    record: Record,
    /// When the last renewal that succeeded was *sent*: nobody can have seen it earlier.
    renewed: Instant,
    /// The renew times that we wrote since then or tried to.
    ours: Vec<String>,
}

impl Elector {
    /// Checks the settings; nothing is sent.
    pub fn new(api: &Api, settings: LeaseSettings) -> Result<Self, LeaseSettingsError> {
        settings.check()?;
        let api = api.with_timeout(settings.renew_deadline);
        let renewals = watch::Sender::new(None);
        Ok(Self { api, settings, held: None, twin: false, logged: String::new(), renewals })
    }

    /// When the lease was renewed last, while it is held.
    pub fn renewals(&self) -> watch::Receiver<Option<Instant>> {
        self.renewals.subscribe()
    }

    /// Waits until we hold the lease. What goes wrong is logged, and tried again.
    ///
    /// May be dropped at any time; a lease that was taken in that moment is taken again at once by the next call.
    pub async fn acquire(&mut self) {
        self.acquire_with_witness(watch::channel(None).1).await;
    }

    /// The same, with a second witness: `gone` tells since when the present holder is known not to be there. Such a
    /// holder is replaced without waiting for the end of its lease.
    pub async fn acquire_with_witness(&mut self, mut gone: watch::Receiver<Option<Instant>>) {
        self.lose();
        let mut candidate = Candidate::new(&self.settings.identity, self.settings.duration, self.twin);
        let mut latest: Option<Record> = None;
        let mut lease = self.watch();
        loop {
            let absent = *gone.borrow_and_update();
            let observed = match candidate.step(Instant::now(), absent) {
                Step::Look => lease.next().await,
                Step::Wait(left) => tokio::select! {
                    observed = lease.next() => observed,
                    () = changed(&mut gone) => continue,
                    () = sleep(left) => continue,
                },
                Step::TakeExpired => {
                    if let Some(now) = self.look(&mut candidate).await {
                        latest = now;
                    }
                    if candidate.step(Instant::now(), absent) != Step::TakeExpired {
                        continue;
                    }
                    if self.take(latest.as_ref()).await.is_ok() {
                        self.log_once(String::new());
                        return;
                    }
                    candidate.distrust(Instant::now());
                    continue;
                }
                Step::Create | Step::Take => {
                    let Err(pause) = self.take(latest.as_ref()).await else {
                        self.log_once(String::new());
                        return;
                    };
                    // Whoever was quicker needs to be seen; the watch may be a moment behind, or away.
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
                    self.observe(&mut candidate, Some(&record));
                    latest = Some(record);
                }
                Some(Observed::Deleted(_)) => {
                    self.observe(&mut candidate, None);
                    latest = None;
                }
                Some(Observed::Listed) if latest.is_none() => self.observe(&mut candidate, None),
                Some(Observed::Listed | Observed::Resumed) => {}
                Some(Observed::Trouble(reason) | Observed::Unreadable { error: reason, .. }) => self.log_once(reason),
                Some(Observed::Absent) => self.log_once(format!("{} has no {GROUP} leases", self.api.server())),
                None => {
                    sleep(self.settings.retry_period).await;
                    lease = self.watch();
                }
            }
        }
    }

    /// Keeps the lease until somebody else has it or `stop` is ready; renewals that fail are repeated. Afterwards we are
    /// not the holder any more, except after [`LossReason::Stopped`], when we are unless released.
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
            // A renewal that is cut off here may have happened; `ours` knows of it.
            let renewed = tokio::select! {
                biased;
                () = &mut stop => return LossReason::Stopped,
                renewed = renewal => renewed,
            };
            match renewed {
                Ok(()) => self.log_once(String::new()),
                Err(Trouble::Lost(reason)) => {
                    self.twin |= reason == LossReason::Twin;
                    self.lose();
                    return reason;
                }
                Err(Trouble::Failed(error)) => {
                    self.log_once(format!("cannot renew it and keep it until somebody else has it: {error}"));
                }
            }
            next = Instant::now() + self.settings.retry_period;
        }
    }

    /// Gives the lease up, so that another takes it at once. Does nothing if it is not ours.
    pub async fn release(&mut self) -> Result<(), ApiError> {
        let Some(mut held) = self.held.take() else { return Ok(()) };
        self.renewals.send_replace(None);
        for _ in 0..RELEASE_TRIES {
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
        Err(ApiError::Conflict(format!("the lease {} changes too often to be released", self.path())))
    }

    /// Whether we hold it, as far as we know.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn lose(&mut self) {
        self.held = None;
        self.renewals.send_replace(None);
    }

    /// Looks at an expired lease once more. An API server that does not answer soon cannot tell us whether the holder
    /// renews, and the holder may have the same trouble with it.
    async fn look(&mut self, candidate: &mut Candidate) -> Option<Option<Record>> {
        let problem = match timeout(self.settings.retry_period, self.read()).await {
            Ok(Ok(now)) => {
                self.observe(candidate, now.as_ref());
                return Some(now);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", self.settings.retry_period),
        };
        candidate.distrust(Instant::now());
        self.log_once(format!("it looks expired, but the API server is slow or away: waiting once more: {problem}"));
        None
    }

    fn watch(&self) -> Watch<Record> {
        let LeaseSettings { namespace, name, .. } = &self.settings;
        let resource = Resource::inside(GROUP, namespace, "leases").fields(&format!("metadata.name={name}"));
        watch_resource(&self.api, resource, Record::read)
    }

    fn observe(&mut self, candidate: &mut Candidate, record: Option<&Record>) {
        if let Some(odd) = candidate.observe(record, Instant::now()) {
            tracing::warn!(lease = self.path(), odd, "a Lease was edited by hand or is held by something odd");
        }
    }

    /// Tries to become the holder, of this Lease or of a new one; fails with how long to pause.
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
                tracing::info!(lease = self.path(), identity, "lease taken");
                let ours = vec![record.renew_time().to_owned()];
                self.held = Some(Held { record, renewed: sent, ours });
                self.renewals.send_replace(Some(sent));
                return Ok(());
            }
            Err(ApiError::Conflict(_) | ApiError::AlreadyExists(_)) => return Err(self.settings.retry_period / 10),
            Err(ApiError::NotFound(_)) if record.is_some() => return Err(self.settings.retry_period / 10),
            Err(ApiError::NotFound(_)) => format!("the namespace {namespace} does not exist; create it"),
            Err(error) => format!("cannot take the lease: {error}"),
        };
        self.log_once(problem);
        Err(self.settings.retry_period)
    }

    async fn renew(&mut self) -> Result<(), Trouble> {
        loop {
            let path = self.path();
            let Some(held) = &mut self.held else { return Err(Trouble::Lost(LossReason::NotHeld)) };
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
                Err(ApiError::NotFound(_)) => return Err(Trouble::Lost(LossReason::Deleted)),
                Err(error) => return Err(Trouble::Failed(error)),
            }
            let now = self.read().await.map_err(Trouble::Failed)?;
            let Some(held) = &mut self.held else { return Err(Trouble::Lost(LossReason::NotHeld)) };
            still_ours(now.as_ref(), &self.settings.identity, &held.ours).map_err(Trouble::Lost)?;
            if let Some(record) = now {
                held.record = record;
            }
        }
    }

    /// The Lease as it is; `None` if there is none.
    async fn read(&self) -> Result<Option<Record>, ApiError> {
        match self.api.get(&self.path()).await {
            Ok(answer) => read(&answer).map(Some),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn path(&self) -> String {
        format!("{GROUP}/namespaces/{}/leases/{}", self.settings.namespace, self.settings.name)
    }

    /// Logs a problem when it changes; an empty one is the end of it.
    fn log_once(&mut self, problem: String) {
        if problem != self.logged && !problem.is_empty() {
            tracing::warn!(lease = self.path(), problem, "trouble with the lease; trying again");
        } else if problem.is_empty() && !self.logged.is_empty() {
            tracing::info!(lease = self.path(), "the trouble with the lease is over");
        }
        self.logged = problem;
    }
}

/// How a renewal fails.
enum Trouble {
    Lost(LossReason),
    Failed(ApiError),
}

/// Waits for the next word of a witness; one that has left says nothing more.
async fn changed(gone: &mut watch::Receiver<Option<Instant>>) {
    if gone.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn read(answer: &[u8]) -> Result<Record, ApiError> {
    let text = std::str::from_utf8(answer).map_err(|error| ApiError::Unreadable(error.to_string()))?;
    Record::read(text).map_err(ApiError::Unreadable)
}
