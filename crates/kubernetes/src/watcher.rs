//! The task behind a watch: list in pages, follow from there, resume, and list again when that is the only way.
//!
//! ```text
//!   list ──pages──▶ Listed ──▶ follow(version) ──lines──▶ Upsert, Deleted
//!     ▲                          │  ▲   │ ended, silent, broken
//!     └── 410, stuck, backwards ─┘  └───┘ resume from the last version
//! ```

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::api::Api;
use crate::backoff::Backoff;
use crate::config::chain;
use crate::error::{ApiError, Status};
use crate::lines::{Lines, TooLong};
use crate::resource::Resource;
use crate::watch::Observed;
use crate::wire::{self, Event, Page};

/// No object is larger; etcd's largest is far smaller.
const LONGEST_LINE: usize = 32 << 20;
/// How long the server lets a watch live; spread, so that a fleet does not come back at once.
const LASTING: (Duration, Duration) = (Duration::from_secs(290), Duration::from_secs(350));
/// For one page of a list.
const LIST_WITHIN: Duration = Duration::from_secs(60);
/// For the beginning of a watch.
const OPEN_WITHIN: Duration = Duration::from_secs(20);
/// So many failures without anything new are more than chance: a refused watch is given up for a list, and one that is
/// cut off each time is told as trouble.
const STUCK: u32 = 3;
/// A server may ask us to wait, but not for ever.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// A watch that lives for so long works; one that ends sooner and told nothing new is a failure in disguise.
const WORKS: Duration = Duration::from_secs(1);

/// The consumer is gone.
#[derive(Debug)]
struct Closed;

/// Why a list or a stream ended.
#[derive(Debug)]
enum End {
    /// The consumer is gone.
    Closed,
    /// It failed and may be tried again.
    Failed(ApiError),
    /// The stream broke, fell silent or ended at once.
    Cut(String),
    /// The stream ended as the server ends them.
    Over,
    /// A list is needed.
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
    told: mpsc::Sender<Observed<T>>,
    backoff: Backoff,
    /// What the consumer believes is wrong; `None` if it believes that all is well.
    wrong: Option<Wrong>,
    /// Up to where everything was told.
    version: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    Trouble(String),
    Absent,
}

impl<T: Send + 'static> Watcher<T> {
    pub(crate) fn new(
        api: &Api,
        resource: Resource,
        parse: fn(&str) -> Result<T, String>,
        told: mpsc::Sender<Observed<T>>,
    ) -> Self {
        Self { api: api.clone(), resource, parse, told, backoff: Backoff::new(), wrong: None, version: String::new() }
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
                    self.tell_failure("list", &error).await?;
                }
                // An expired continue token is nobody's trouble.
                Err(_) => {}
            }
            let wait = if self.wrong == Some(Wrong::Absent) {
                let about = self.resource.absent_wait();
                self.backoff.between(about.mul_f64(0.8), about.mul_f64(1.2))
            } else {
                self.backoff.next()
            };
            sleep(wait.max(asked)).await;
        }
    }

    /// Tells the whole list, page by page.
    async fn list(&mut self) -> Result<(), End> {
        let mut next: Option<String> = None;
        loop {
            let answer = self
                .api
                .with_timeout(LIST_WITHIN)
                .list(&self.resource.list_path(next.as_deref()), self.resource.list_accept())
                .await?;
            if next.is_none() {
                self.tell(Observed::Relisting).await?;
            }
            let mut batch = Vec::new();
            next = self.read_page(&answer, &mut batch)?;
            drop(answer);
            self.tell_all(&mut batch).await?;
            if next.is_none() {
                break;
            }
        }
        self.wrong = None;
        self.tell(Observed::Listed).await?;
        Ok(())
    }

    /// Reads a page and returns the token of the next.
    fn read_page(&mut self, answer: &[u8], batch: &mut Vec<Observed<T>>) -> Result<Option<String>, End> {
        let unreadable = |error: String| End::Failed(ApiError::Unreadable(format!("a list: {error}")));
        let page: Page<'_> = serde_json::from_slice(answer).map_err(|error| unreadable(error.to_string()))?;
        if page.metadata.version.is_empty() {
            return Err(unreadable("it has no resourceVersion".into()));
        }
        let items = page.items.unwrap_or_default();
        batch.reserve(items.len());
        batch.extend(items.iter().map(|item| self.read(item.get())));
        self.version.clear();
        self.version.push_str(&page.metadata.version);
        Ok(page.metadata.next.filter(|next| !next.is_empty()).map(std::borrow::Cow::into_owned))
    }

    /// Follows from `version` on; returns when a list is needed.
    async fn follow(&mut self) -> Result<(), Closed> {
        let (mut failures, mut cuts) = (0, 0);
        loop {
            let lasting = self.backoff.between(LASTING.0, LASTING.1);
            let before = self.version.clone();
            let path = self.resource.watch_path(&self.version, lasting);
            let ended = match self.api.with_timeout(OPEN_WITHIN).open(&path, self.resource.watch_accept()).await {
                Ok(body) => {
                    let opened = Instant::now();
                    let Err(ended) = self.stream(body, opened).await;
                    if self.version != before || opened.elapsed() >= WORKS {
                        (failures, cuts) = (0, 0);
                        self.backoff.reset();
                    }
                    ended
                }
                Err(error) => End::Failed(error),
            };
            let mut asked = Duration::ZERO;
            match ended {
                End::Closed => return Err(Closed),
                End::Over => continue,
                End::Relist | End::Failed(ApiError::Gone(_) | ApiError::NotFound(_)) => return Ok(()),
                // The next try shows whether it was more than a server that went away.
                End::Cut(why) => {
                    cuts += 1;
                    if cuts >= STUCK {
                        self.tell_wrong(Wrong::Trouble(format!("cannot watch {}: {why}", self.resource.path())))
                            .await?;
                    }
                }
                End::Failed(error) => {
                    failures += u32::from(!is_away(&error));
                    asked = error.retry_after().unwrap_or_default().min(LONGEST_RETRY_AFTER);
                    self.tell_failure("watch", &error).await?;
                    if failures >= STUCK {
                        return Ok(());
                    }
                }
            }
            let wait = self.backoff.next().max(asked);
            sleep(wait).await;
        }
    }

    /// Tells what a stream brings until it ends.
    async fn stream(&mut self, mut body: Incoming, opened: Instant) -> Result<Infallible, End> {
        let mut lines = Lines::new(LONGEST_LINE);
        let mut batch = Vec::new();
        let mut heard = false;
        loop {
            // Who believes that something is wrong is told soon that it is not.
            let limit = if self.wrong.is_some() { WORKS } else { self.resource.longest_silence() };
            let frame = match timeout(limit, body.frame()).await {
                Err(_) if self.wrong.is_some() => {
                    self.tell_resumed().await?;
                    continue;
                }
                Err(_) => return Err(End::Cut(format!("it was silent for {limit:?}"))),
                Ok(None) if !heard && opened.elapsed() < WORKS => return Err(End::Cut("it ends at once".into())),
                Ok(None) => return Err(End::Over),
                Ok(Some(Err(error))) => return Err(End::Cut(format!("it broke off: {}", chain(&error)))),
                Ok(Some(Ok(frame))) => frame,
            };
            let Some(data) = frame.data_ref() else { continue };
            heard = true;
            let read = lines.feed(data, |line| self.read_line(line, &mut batch));
            // What was read before a bad line counts.
            self.tell_all(&mut batch).await?;
            read?;
            if self.wrong.is_some() {
                self.tell_resumed().await?;
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
        let event: Event<'_> = serde_json::from_slice(line)
            .map_err(|error| ApiError::Unreadable(format!("a line of the watch: {error}")))?;
        let object = event.object.get();
        match event.kind.as_ref() {
            "ADDED" | "MODIFIED" => batch.push(self.read(object)),
            "DELETED" => batch.push(Observed::Deleted(wire::identity(object))),
            "BOOKMARK" => {
                // A server that was set back to a backup never tells what it believes we know already.
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
            other => tracing::debug!(path = self.resource.path(), kind = other, "a watch tells what we do not know"),
        }
        self.advance(object);
        Ok(())
    }

    /// Everything up to this object was read.
    fn advance(&mut self, object: &str) {
        if let Some(version) = wire::version(object) {
            self.version.clear();
            self.version.push_str(version);
        }
    }

    fn read(&self, object: &str) -> Observed<T> {
        match (self.parse)(object) {
            Ok(fact) => Observed::Upsert(fact),
            Err(error) => Observed::Unreadable { object: wire::identity(object), error },
        }
    }

    async fn tell(&self, event: Observed<T>) -> Result<(), Closed> {
        self.told.send(event).await.map_err(|_| Closed)
    }

    async fn tell_all(&self, batch: &mut Vec<Observed<T>>) -> Result<(), Closed> {
        for event in batch.drain(..) {
            self.tell(event).await?;
        }
        Ok(())
    }

    async fn tell_resumed(&mut self) -> Result<(), Closed> {
        self.wrong = None;
        self.tell(Observed::Resumed).await
    }

    async fn tell_failure(&mut self, doing: &str, error: &ApiError) -> Result<(), Closed> {
        let wrong = match error {
            ApiError::NotFound(_) => Wrong::Absent,
            _ => Wrong::Trouble(format!("cannot {doing} {}: {error}", self.resource.path())),
        };
        self.tell_wrong(wrong).await
    }

    /// Tells what is wrong unless the consumer knows.
    async fn tell_wrong(&mut self, wrong: Wrong) -> Result<(), Closed> {
        if self.wrong.as_ref() == Some(&wrong) {
            return Ok(());
        }
        let event = match &wrong {
            Wrong::Trouble(reason) => Observed::Trouble(reason.clone()),
            Wrong::Absent => Observed::Absent,
        };
        self.wrong = Some(wrong);
        self.tell(event).await
    }
}

/// Whether a failure says nothing of what was asked for: the server is away, starting or busy.
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
