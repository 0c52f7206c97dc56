//! Acquires, holds and releases a lease; the caller drives it, there is no task of its own.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout_at};

use crate::api::Api;
use crate::error::ApiError;
use crate::lease::decision::{Candidate, LossReason, Step, still_ours};
use crate::lease::record::Record;
use crate::lease::settings::{LeaseSettings, LeaseSettingsError};
use crate::resource::Resource;
use crate::watch::{Observed, Watch, watch};

const GROUP: &str = "/apis/coordination.k8s.io/v1";
/// A lease that others touch while we release it is looked at again, but not for ever.
const RELEASE_TRIES: u32 = 5;

/// One who wants a lease, or has it.
///
/// On a machine that was asleep, a holder believes in its lease until its next renewal fails: what it does meanwhile
/// must be fenced elsewhere.
#[derive(Debug)]
pub struct Elector {
    api: Api,
    settings: LeaseSettings,
    held: Option<Held>,
    /// Somebody else was seen under our identity: from then on it is nobody to be trusted.
    twin: bool,
    /// What was logged last, so that each trouble is logged once.
    logged: String,
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
        // Several tries must fit into the deadline, or one lost packet costs the lease.
        let api = api.with_timeout(settings.renew_deadline / 3);
        Ok(Self { api, settings, held: None, twin: false, logged: String::new() })
    }

    /// Waits until we hold the lease. What goes wrong is logged, and tried again.
    ///
    /// May be dropped at any time; a lease that was taken in that moment is taken again at once by the next call.
    pub async fn acquire(&mut self) {
        self.held = None;
        let mut candidate = Candidate::new(&self.settings.identity, self.settings.duration, self.twin);
        let mut latest: Option<Record> = None;
        let mut lease = self.watch();
        loop {
            let observed = match candidate.step(Instant::now()) {
                Step::Look => lease.next().await,
                Step::Wait(left) => tokio::select! {
                    observed = lease.next() => observed,
                    () = sleep(left) => continue,
                },
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

    /// Keeps the lease until it is lost or `stop` is ready. Afterwards we are not the holder any more, except after
    /// [`LossReason::Stopped`], when we are for at least `duration - renew_deadline` unless released.
    pub async fn hold(&mut self, stop: impl Future<Output = ()>) -> LossReason {
        let mut stop = pin!(stop);
        let mut last = String::from("no answer");
        let mut next = match &self.held {
            Some(held) => held.renewed + self.settings.retry_period,
            None => return LossReason::NotHeld,
        };
        loop {
            let Some(held) = &self.held else { return LossReason::NotHeld };
            let deadline = tokio::time::Instant::from_std(held.renewed + self.settings.renew_deadline);
            let renewal = async {
                sleep_until(next.into()).await;
                self.renew().await
            };
            // A renewal that is cut off here may have happened; `ours` knows of it.
            let renewed = tokio::select! {
                biased;
                () = &mut stop => return LossReason::Stopped,
                renewed = timeout_at(deadline, renewal) => renewed,
            };
            match renewed {
                Ok(Ok(())) => self.log_once(String::new()),
                Ok(Err(Trouble::Lost(reason))) => {
                    self.twin |= reason == LossReason::Twin;
                    self.held = None;
                    return reason;
                }
                Ok(Err(Trouble::Failed(error))) => {
                    last = error.to_string();
                    self.log_once(format!("cannot renew: {last}"));
                }
                Err(_) => return LossReason::Unrenewed { after: self.settings.renew_deadline, last },
            }
            next = Instant::now() + self.settings.retry_period;
        }
    }

    /// Gives the lease up, so that another takes it at once. Does nothing if it is not ours.
    pub async fn release(&mut self) -> Result<(), ApiError> {
        let Some(mut held) = self.held.take() else { return Ok(()) };
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
        self.held.as_ref().is_some_and(|held| held.renewed.elapsed() < self.settings.renew_deadline)
    }

    fn watch(&self) -> Watch<Record> {
        let LeaseSettings { namespace, name, .. } = &self.settings;
        let resource = Resource::inside(GROUP, namespace, "leases").fields(&format!("metadata.name={name}"));
        watch(&self.api, resource, Record::read)
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

fn read(answer: &[u8]) -> Result<Record, ApiError> {
    let text = std::str::from_utf8(answer).map_err(|error| ApiError::Unreadable(error.to_string()))?;
    Record::read(text).map_err(ApiError::Unreadable)
}
