//! The recorder, and the task that writes Events at a limited rate.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backoff::Retries;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::BACKOFF;
use crate::api::{Api, Patch};
use crate::error::ApiError;
use crate::events::note::{Note, repetition};
use crate::events::queue::{Queue, QueuedNote};

/// Events that may wait to be written.
const QUEUE: usize = 512;
/// Events written without delay before the rate limit applies.
const BURST: u32 = 25;
/// Interval between Events after a burst.
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of Events whose count is cached.
const CACHED_COUNTS: usize = 2048;
/// Attempts per Event if the server fails temporarily.
const ATTEMPTS: u32 = 5;

/// Records Events. Cheap to clone; never blocks.
#[derive(Debug, Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    // Dropping the last clone ends the task.
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
    /// Starts the task. `component` is the kind of process (`ovnkube-controller`), `instance` the pod's name.
    pub fn new(api: &Api, component: &str, instance: &str) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::new(Queue::new(QUEUE)), more: Notify::new() });
        let writer = EventWriter {
            api: api.clone(),
            component: component.to_owned(),
            instance: instance.to_owned(),
            counts: HashMap::new(),
            order: VecDeque::new(),
            failed: false,
        };
        let task = tokio::spawn(writer.run(shared.clone())).abort_handle();
        Self { shared, _alive: Arc::new(Alive(task)) }
    }

    /// Queues an Event. If the queue is full, the oldest is dropped.
    pub fn record(&self, note: Note) {
        self.shared.queue().add(note);
        self.shared.more.notify_one();
    }

    /// Number of Events that were dropped or could not be written.
    pub fn dropped(&self) -> u64 {
        self.shared.queue().dropped()
    }
}

struct EventWriter {
    api: Api,
    component: String,
    instance: String,
    /// Counts of existing Events, by namespace and name.
    counts: HashMap<String, u64>,
    /// Keys of `counts`, oldest first.
    order: VecDeque<String>,
    /// Whether a failure was already logged as a warning.
    failed: bool,
}

impl EventWriter {
    async fn run(mut self, shared: Arc<Shared>) {
        // Token bucket as a time: at most a burst in the past; the task waits if it is in the future.
        let mut used = Instant::now();
        loop {
            let Some(waiting) = ({ shared.queue().take() }) else {
                shared.more.notified().await;
                continue;
            };
            let now = Instant::now();
            used = used.max(now.checked_sub(INTERVAL * BURST).unwrap_or(now)) + INTERVAL;
            sleep_until(used).await;
            if let Err(error) = self.write_with_retries(&waiting).await {
                // Warn once, for example about missing RBAC; the reason is in the log of its reporter anyway.
                if std::mem::replace(&mut self.failed, true) {
                    tracing::debug!(event = waiting.name, %error, "cannot write Event; dropped");
                } else {
                    tracing::warn!(event = waiting.name, %error, "cannot write Event; dropped");
                }
                shared.queue().drop_taken(&waiting);
            }
        }
    }

    async fn write_with_retries(&mut self, waiting: &QueuedNote) -> Result<(), ApiError> {
        let mut retries = Retries::new(BACKOFF);
        let mut tries = 1;
        loop {
            match self.write(waiting).await {
                Err(error) if error.is_temporary() && tries < ATTEMPTS => {
                    tries += 1;
                    sleep(retries.next_delay().max(error.retry_after().unwrap_or_default())).await;
                }
                other => return other,
            }
        }
    }

    async fn write(&mut self, waiting: &QueuedNote) -> Result<(), ApiError> {
        let key = format!("{}/{}", waiting.note.namespace(), waiting.name);
        if let Some(count) = self.counts.get(&key).copied() {
            match self.patch(waiting, count + waiting.times).await {
                // Events expire after an hour.
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
            // Written by an earlier process, or a response was lost.
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

    async fn patch(&self, waiting: &QueuedNote, count: u64) -> Result<(), ApiError> {
        self.api.patch(&path(waiting), Patch::Merge, repetition(count).to_string().into_bytes()).await.map(|_| ())
    }

    fn remember(&mut self, key: String, count: u64) {
        if self.counts.insert(key.clone(), count).is_none() {
            self.order.push_back(key);
        }
        while self.counts.len() > CACHED_COUNTS
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

fn collection(waiting: &QueuedNote) -> String {
    format!("/api/v1/namespaces/{}/events", waiting.note.namespace())
}

fn path(waiting: &QueuedNote) -> String {
    format!("{}/{}", collection(waiting), waiting.name)
}
