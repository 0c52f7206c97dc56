//! The task that tells the server, at a pace.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::api::{Api, Patch};
use crate::backoff::Backoff;
use crate::error::ApiError;
use crate::events::note::{Note, again};
use crate::events::queue::{Queue, Waiting};

/// What may wait.
const QUEUE: usize = 512;
/// How many Events are told at once before the pace counts.
const BURST: u32 = 25;
/// After that, one in so long.
const PACE: Duration = Duration::from_millis(100);
/// How many Events we remember the counts of.
const REMEMBERED: usize = 2048;
/// How often an Event is tried while the server is in trouble.
const TRIES: u32 = 5;

/// Posts Events. Cheap to clone; never makes its caller wait.
#[derive(Debug, Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    // The last clone that goes ends the task.
    _alive: Arc<Alive>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    more: Notify,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Alive(tokio::task::AbortHandle);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Recorder {
    /// Starts the task. `component` is what we are (`ovnkube-controller`), `instance` which one (the pod's name).
    pub fn new(api: &Api, component: &str, instance: &str) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::new(Queue::new(QUEUE)), more: Notify::new() });
        let teller = Teller {
            api: api.clone(),
            component: component.to_owned(),
            instance: instance.to_owned(),
            counts: HashMap::new(),
            order: VecDeque::new(),
            failed: false,
        };
        let task = tokio::spawn(teller.run(shared.clone())).abort_handle();
        Self { shared, _alive: Arc::new(Alive(task)) }
    }

    /// Tells something, soon. If more waits than can be told, the oldest is dropped.
    pub fn record(&self, note: Note) {
        self.shared.queue().add(note);
        self.shared.more.notify_one();
    }

    /// How many notes were dropped, or refused by the server.
    pub fn dropped(&self) -> u64 {
        self.shared.queue().dropped()
    }
}

struct Teller {
    api: Api,
    component: String,
    instance: String,
    /// Counts of Events that we know to exist, by namespace and name.
    counts: HashMap<String, u64>,
    /// The same, oldest first.
    order: VecDeque<String>,
    /// Whether one could not be told already.
    failed: bool,
}

impl Teller {
    async fn run(mut self, shared: Arc<Shared>) {
        // Up to when the pace is used up: it may lie behind by a burst, and is waited for when it lies ahead.
        let mut used = Instant::now();
        loop {
            let Some(waiting) = ({ shared.queue().take() }) else {
                shared.more.notified().await;
                continue;
            };
            let now = Instant::now();
            used = used.max(now.checked_sub(PACE * BURST).unwrap_or(now)) + PACE;
            sleep_until(used).await;
            if let Err(error) = self.tell_patiently(&waiting).await {
                // The first is worth a look, such as that a role forbids it; the object has it in the log anyway.
                if std::mem::replace(&mut self.failed, true) {
                    tracing::debug!(event = waiting.name, %error, "an Event could not be told");
                } else {
                    tracing::warn!(event = waiting.name, %error, "an Event could not be told");
                }
                shared.queue().drop_taken(&waiting);
            }
        }
    }

    async fn tell_patiently(&mut self, waiting: &Waiting) -> Result<(), ApiError> {
        let mut backoff = Backoff::new();
        let mut tries = 1;
        loop {
            match self.tell(waiting).await {
                Err(error) if error.is_temporary() && tries < TRIES => {
                    tries += 1;
                    sleep(backoff.next().max(error.retry_after().unwrap_or_default())).await;
                }
                other => return other,
            }
        }
    }

    async fn tell(&mut self, waiting: &Waiting) -> Result<(), ApiError> {
        let key = format!("{}/{}", waiting.note.namespace(), waiting.name);
        if let Some(count) = self.counts.get(&key).copied() {
            match self.patch(waiting, count + waiting.times).await {
                // Events live for an hour.
                Err(ApiError::NotFound(_)) => self.forget(&key),
                Ok(()) => {
                    self.remember(key, count + waiting.times);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        let event = waiting.note.event(&self.component, &self.instance, waiting.times);
        match self.api.post(&collection(waiting), event.to_string().into_bytes()).await {
            Ok(_) => self.remember(key, waiting.times),
            // An earlier process told it, or an answer was lost.
            Err(ApiError::AlreadyExists(_)) => {
                let answer = self.api.get(&path(waiting)).await?;
                let event: serde_json::Value =
                    serde_json::from_slice(&answer).map_err(|error| ApiError::Unreadable(error.to_string()))?;
                let count = event["count"].as_u64().unwrap_or(1) + waiting.times;
                self.patch(waiting, count).await?;
                self.remember(key, count);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn patch(&self, waiting: &Waiting, count: u64) -> Result<(), ApiError> {
        self.api.patch(&path(waiting), Patch::Merge, again(count).to_string().into_bytes()).await.map(|_| ())
    }

    fn remember(&mut self, key: String, count: u64) {
        if self.counts.insert(key.clone(), count).is_none() {
            self.order.push_back(key);
        }
        while self.counts.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
    }

    fn forget(&mut self, key: &str) {
        self.counts.remove(key);
        self.order.retain(|known| known != key);
    }
}

fn collection(waiting: &Waiting) -> String {
    format!("/api/v1/namespaces/{}/events", waiting.note.namespace())
}

fn path(waiting: &Waiting) -> String {
    format!("{}/{}", collection(waiting), waiting.name)
}
