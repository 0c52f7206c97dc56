//! The task of a watch: list in pages, watch from there, resume, and list again if the watch cannot be resumed.
//!
//! ```text
//!   list ──pages──▶ Listed ──▶ follow(version) ──lines──▶ Upsert, Deleted
//!     ▲                          │  ▲   │ ended, silent, broken
//!     └── 410, stuck, backwards ─┘  └───┘ resume from the last version
//! ```

use std::convert::Infallible;
use std::time::Duration;

use backoff::{Jitter, Retries};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::BACKOFF;
use crate::api::Api;
use crate::config::chain;
use crate::error::{ApiError, Status};
use crate::lines::{Lines, TooLong};
use crate::resource::Resource;
use crate::watch::Observed;
use crate::wire::{self, Event, Page};

/// Longest line of a watch, in bytes; etcd's largest object is far smaller.
const LONGEST_LINE: usize = 32 << 20;
/// Requested duration of a watch; random, so that many clients do not reconnect at once.
const LASTING: (Duration, Duration) = (Duration::from_secs(290), Duration::from_secs(350));
/// Limit of one page of a list.
const LIST_WITHIN: Duration = Duration::from_secs(60);
/// Limit until a watch starts.
const OPEN_WITHIN: Duration = Duration::from_secs(20);
/// After this many failures without a new event, a rejected watch is replaced by a list, and a watch that is cut off
/// each time is reported as failed.
const STUCK: u32 = 3;
/// Upper bound of the server's `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// A watch of this length works; a shorter one without a new event counts as a failure.
const WORKS: Duration = Duration::from_secs(1);

/// The consumer was dropped.
#[derive(Debug)]
struct Closed;

/// Why a list or a stream ended.
#[derive(Debug)]
enum End {
    /// The consumer was dropped.
    Closed,
    /// The request failed and may be retried.
    Failed(ApiError),
    /// The stream was cut off, had no data for too long, or ended at once.
    Cut(String),
    /// The stream ended regularly.
    ServerClosed,
    /// A new list is needed.
    Relist,
}

impl From<Closed> for End {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<ApiError> for End {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl From<TooLong> for End {
    fn from(error: TooLong) -> Self {
        Self::Failed(ApiError::Unreadable(error.to_string()))
    }
}

pub(crate) struct Watcher<T> {
    api: Api,
    resource: Resource,
    parse: fn(&str) -> Result<T, String>,
    events: mpsc::Sender<Observed<T>>,
    retries: Retries,
    jitter: Jitter,
    /// The last problem sent to the consumer; `None` if it was resolved.
    problem: Option<Problem>,
    /// resourceVersion up to which all events were read.
    version: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Failed(String),
    Absent,
}

impl<T: Send + 'static> Watcher<T> {
    pub(crate) fn new(
        api: &Api,
        resource: Resource,
        parse: fn(&str) -> Result<T, String>,
        events: mpsc::Sender<Observed<T>>,
    ) -> Self {
        Self {
            api: api.clone(),
            resource,
            parse,
            events,
            retries: Retries::new(BACKOFF),
            jitter: Jitter::new(),
            problem: None,
            version: String::new(),
        }
    }

    /// Runs until the consumer is gone.
    pub(crate) async fn run(mut self) {
        let Err(_closed) = self.list_and_follow().await;
    }

    async fn list_and_follow(&mut self) -> Result<Infallible, Closed> {
        loop {
            let mut asked = Duration::ZERO;
            match self.list().await {
                Ok(()) => self.follow().await?,
                Err(End::Closed) => return Err(Closed),
                Err(End::Failed(error)) if !matches!(error, ApiError::Gone(_)) => {
                    asked = error.retry_after().unwrap_or_default().min(LONGEST_RETRY_AFTER);
                    self.send_failure("list", &error).await?;
                }
                // An expired continue token is not a failure.
                Err(_) => {}
            }
            let wait = if self.problem == Some(Problem::Absent) {
                let about = self.resource.absent_wait();
                self.jitter.between(about.mul_f64(0.8), about.mul_f64(1.2))
            } else {
                self.retries.next_delay()
            };
            sleep(wait.max(asked)).await;
        }
    }

    /// Sends the whole list, page by page.
    async fn list(&mut self) -> Result<(), End> {
        let mut next: Option<String> = None;
        loop {
            let answer = self
                .api
                .with_timeout(LIST_WITHIN)
                .list(&self.resource.list_path(next.as_deref()), self.resource.list_accept())
                .await?;
            if next.is_none() {
                self.send(Observed::Relisting).await?;
            }
            let mut batch = Vec::new();
            next = self.read_page(&answer, &mut batch)?;
            drop(answer);
            self.send_all(&mut batch).await?;
            if next.is_none() {
                break;
            }
        }
        self.problem = None;
        self.send(Observed::Listed).await?;
        Ok(())
    }

    /// Parses a page and returns the continue token.
    fn read_page(&mut self, answer: &[u8], batch: &mut Vec<Observed<T>>) -> Result<Option<String>, End> {
        let unreadable = |error: String| End::Failed(ApiError::Unreadable(format!("list: {error}")));
        let page: Page<'_> = serde_json::from_slice(answer).map_err(|error| unreadable(error.to_string()))?;
        if page.metadata.version.is_empty() {
            return Err(unreadable("no resourceVersion".into()));
        }
        let items = page.items.unwrap_or_default();
        batch.reserve(items.len());
        batch.extend(items.iter().map(|item| self.read(item.get())));
        self.version.clear();
        self.version.push_str(&page.metadata.version);
        Ok(page.metadata.next.filter(|next| !next.is_empty()).map(std::borrow::Cow::into_owned))
    }

    /// Watches from `version` on; returns when a new list is needed.
    async fn follow(&mut self) -> Result<(), Closed> {
        let (mut failures, mut cuts) = (0, 0);
        loop {
            let lasting = self.jitter.between(LASTING.0, LASTING.1);
            let before = self.version.clone();
            let path = self.resource.watch_path(&self.version, lasting);
            let ended = match self.api.with_timeout(OPEN_WITHIN).open(&path, self.resource.watch_accept()).await {
                Ok(body) => {
                    let opened = Instant::now();
                    let Err(ended) = self.stream(body, opened).await;
                    if self.version != before || opened.elapsed() >= WORKS {
                        (failures, cuts) = (0, 0);
                        self.retries.reset();
                    }
                    ended
                }
                Err(error) => End::Failed(error),
            };
            let mut asked = Duration::ZERO;
            match ended {
                End::Closed => return Err(Closed),
                End::ServerClosed => continue,
                End::Relist | End::Failed(ApiError::Gone(_) | ApiError::NotFound(_)) => return Ok(()),
                // The next attempt shows whether it was more than a restart of the server.
                End::Cut(why) => {
                    cuts += 1;
                    if cuts >= STUCK {
                        self.send_problem(Problem::Failed(format!("cannot watch {}: {why}", self.resource.path())))
                            .await?;
                    }
                }
                End::Failed(error) => {
                    failures += u32::from(!is_away(&error));
                    asked = error.retry_after().unwrap_or_default().min(LONGEST_RETRY_AFTER);
                    self.send_failure("watch", &error).await?;
                    if failures >= STUCK {
                        return Ok(());
                    }
                }
            }
            let wait = self.retries.next_delay().max(asked);
            sleep(wait).await;
        }
    }

    /// Sends the events of a stream until it ends.
    async fn stream(&mut self, mut body: Incoming, opened: Instant) -> Result<Infallible, End> {
        let mut lines = Lines::new(LONGEST_LINE);
        let mut batch = Vec::new();
        let mut heard = false;
        loop {
            // After a reported problem, report soon that the watch works again.
            let limit = if self.problem.is_some() { WORKS } else { self.resource.longest_silence() };
            let frame = match timeout(limit, body.frame()).await {
                Err(_) if self.problem.is_some() => {
                    self.send_resumed().await?;
                    continue;
                }
                Err(_) => return Err(End::Cut(format!("no data for {limit:?}"))),
                Ok(None) if !heard && opened.elapsed() < WORKS => {
                    return Err(End::Cut("the stream ended at once".into()));
                }
                Ok(None) => return Err(End::ServerClosed),
                Ok(Some(Err(error))) => return Err(End::Cut(format!("the stream was cut off: {}", chain(&error)))),
                Ok(Some(Ok(frame))) => frame,
            };
            let Some(data) = frame.data_ref() else { continue };
            heard = true;
            let read = lines.feed(data, |line| self.read_line(line, &mut batch));
            // Events before a malformed line count.
            self.send_all(&mut batch).await?;
            read?;
            if self.problem.is_some() {
                self.send_resumed().await?;
            }
        }
    }

    fn read_line(&mut self, line: &[u8], batch: &mut Vec<Observed<T>>) -> Result<(), End> {
        if let Some(object) = wire::upserted(line)
            && let Ok(fact) = (self.parse)(object)
        {
            batch.push(Observed::Upsert(fact));
            self.advance(object);
            return Ok(());
        }
        let event: Event<'_> =
            serde_json::from_slice(line).map_err(|error| ApiError::Unreadable(format!("watch event: {error}")))?;
        let object = event.object.get();
        match event.kind.as_ref() {
            "ADDED" | "MODIFIED" => batch.push(self.read(object)),
            "DELETED" => batch.push(Observed::Deleted(wire::identity(object))),
            "BOOKMARK" => {
                // A server restored from a backup does not send events for versions that it believes we have.
                if let (Some(theirs), Ok(ours)) = (number(wire::version(object)), self.version.parse::<u64>())
                    && theirs < ours
                {
                    return Err(End::Relist);
                }
            }
            "ERROR" => {
                let status = Status::read(object.as_bytes());
                return Err(End::Failed(ApiError::from_status(status.code, &status, None)));
            }
            other => tracing::debug!(path = self.resource.path(), kind = other, "ignoring unknown watch event"),
        }
        self.advance(object);
        Ok(())
    }

    /// Stores the version of the object as the last one read.
    fn advance(&mut self, object: &str) {
        if let Some(version) = wire::version(object) {
            self.version.clear();
            self.version.push_str(version);
        }
    }

    fn read(&self, object: &str) -> Observed<T> {
        match (self.parse)(object) {
            Ok(fact) => Observed::Upsert(fact),
            Err(error) => Observed::Malformed { object: wire::identity(object), error },
        }
    }

    async fn send(&self, event: Observed<T>) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_| Closed)
    }

    async fn send_all(&self, batch: &mut Vec<Observed<T>>) -> Result<(), Closed> {
        for event in batch.drain(..) {
            self.send(event).await?;
        }
        Ok(())
    }

    async fn send_resumed(&mut self) -> Result<(), Closed> {
        self.problem = None;
        self.send(Observed::Resumed).await
    }

    async fn send_failure(&mut self, doing: &str, error: &ApiError) -> Result<(), Closed> {
        let problem = match error {
            ApiError::NotFound(_) => Problem::Absent,
            _ => Problem::Failed(format!("cannot {doing} {}: {error}", self.resource.path())),
        };
        self.send_problem(problem).await
    }

    /// Sends a problem unless it is the last one sent.
    async fn send_problem(&mut self, problem: Problem) -> Result<(), Closed> {
        if self.problem.as_ref() == Some(&problem) {
            return Ok(());
        }
        let event = match &problem {
            Problem::Failed(reason) => Observed::Failed(reason.clone()),
            Problem::Absent => Observed::Absent,
        };
        self.problem = Some(problem);
        self.send(event).await
    }
}

/// Whether the server is unreachable, starting or busy, so that the failure says nothing about the request.
fn is_away(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Transport(_)
            | ApiError::Timeout { .. }
            | ApiError::TooMany { .. }
            | ApiError::Server { status: 503, .. }
    )
}

fn number(version: Option<&str>) -> Option<u64> {
    version?.parse().ok()
}
