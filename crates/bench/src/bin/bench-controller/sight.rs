//! A bare watcher: when each object and its annotation were seen.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kubernetes::{Api, Observed, Resource, Watch, watch};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Limit of a wait; exceeded only by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// For all that something waits for, however many events come meanwhile.
const LIMIT: Duration = Duration::from_mins(30);

/// Waits for something that takes many events.
pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LIMIT, wait).await.with_context(|| format!("{what}: not within {LIMIT:?}"))?
}

/// What is read of an object.
#[derive(Debug)]
pub(crate) struct Glimpse {
    /// `namespace/name`.
    key: String,
    annotated: bool,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: HashMap<Cow<'a, str>, IgnoredAny>,
}

fn read(json: &str) -> Result<Glimpse, String> {
    let Object { metadata } = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let ours = ["k8s.ovn.org/pod-networks", "k8s.ovn.org/node-subnets"];
    Ok(Glimpse {
        key: format!("{}/{}", metadata.namespace, metadata.name),
        annotated: ours.iter().any(|key| metadata.annotations.contains_key(*key)),
    })
}

/// When something was seen first.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) came: Option<Instant>,
    pub(crate) annotated: Option<Instant>,
}

/// A watch of the objects of one purpose.
#[derive(Debug)]
pub(crate) struct Sight {
    watch: Watch<Glimpse>,
    pub(crate) times: HashMap<String, Times>,
    annotated: usize,
    last: Instant,
}

impl Sight {
    /// Starts a watch; returns after the initial list.
    pub(crate) async fn of(api: &Api, plural: &str, purpose: &str) -> Result<Self> {
        Self::begin(api, Resource::all("/api/v1", plural).labels(&format!("bench={purpose}"))).await
    }

    /// Starts a watch of all objects of a kind.
    pub(crate) async fn of_all(api: &Api, plural: &str) -> Result<Self> {
        Self::begin(api, Resource::all("/api/v1", plural)).await
    }

    async fn begin(api: &Api, resource: Resource) -> Result<Self> {
        let watch = watch(api, resource, read);
        let mut sight = Self { watch, times: HashMap::new(), annotated: 0, last: Instant::now() };
        within("the list of what is there", async {
            while !sight.step().await? {}
            Ok(())
        })
        .await?;
        Ok(sight)
    }

    /// Waits until this many have the annotation; returns the time of the last.
    pub(crate) async fn annotated(&mut self, count: usize) -> Result<Instant> {
        let waited = within("annotations", async {
            while self.annotated < count {
                self.step().await?;
            }
            Ok(())
        });
        waited.await.with_context(|| format!("{} of {count} are annotated", self.annotated))?;
        Ok(self.last)
    }

    /// Waits until this many exist.
    pub(crate) async fn there(&mut self, count: usize) -> Result<()> {
        within("all objects", async {
            while self.times.len() < count {
                self.step().await?;
            }
            Ok(())
        })
        .await
    }

    /// The next event; true if it ends a list.
    pub(crate) async fn step(&mut self) -> Result<bool> {
        let event = tokio::time::timeout(PATIENCE, self.watch.next()).await.context("nothing is seen any more")?;
        let now = Instant::now();
        match event.context("the watch ended")? {
            Observed::Upsert(Glimpse { key, annotated }) => {
                let times = self.times.entry(key).or_default();
                times.came.get_or_insert(now);
                if annotated && times.annotated.is_none() {
                    times.annotated = Some(now);
                    self.annotated += 1;
                    self.last = now;
                }
            }
            Observed::Listed => return Ok(true),
            Observed::Malformed { object, error } => bail!("{object} cannot be read: {error}"),
            Observed::Failed(why) => eprintln!("  the bare watch: {why}"),
            _ => {}
        }
        Ok(false)
    }
}
