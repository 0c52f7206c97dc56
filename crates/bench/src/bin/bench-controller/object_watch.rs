//! A bare watcher: when each object and its annotation were seen.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kubernetes::{Api, Observed, Resource, Watch, watch};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Limit of a wait; exceeded only by a failure.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// Limit of a wait for many events.
const LIMIT: Duration = Duration::from_mins(30);

/// Applies [`LIMIT`] to a wait.
pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LIMIT, wait).await.with_context(|| format!("timed out after {LIMIT:?} waiting for {what}"))?
}

/// The fields of an object that are read.
#[derive(Debug)]
pub(crate) struct Summary {
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

fn read(json: &str) -> Result<Summary, String> {
    let Object { metadata } = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let ours = ["k8s.ovn.org/pod-networks", "k8s.ovn.org/node-subnets"];
    Ok(Summary {
        key: format!("{}/{}", metadata.namespace, metadata.name),
        annotated: ours.iter().any(|key| metadata.annotations.contains_key(*key)),
    })
}

/// When an object, and its annotation, was first seen.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) came: Option<Instant>,
    pub(crate) annotated: Option<Instant>,
}

/// A watch of the objects with one `bench` label.
#[derive(Debug)]
pub(crate) struct ObjectWatch {
    watch: Watch<Summary>,
    pub(crate) times: HashMap<String, Times>,
    annotated: usize,
    last: Instant,
}

impl ObjectWatch {
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
        let mut objects = Self { watch, times: HashMap::new(), annotated: 0, last: Instant::now() };
        within("the initial list", async {
            while !objects.step().await? {}
            Ok(())
        })
        .await?;
        Ok(objects)
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
        let event = tokio::time::timeout(TIMEOUT, self.watch.next())
            .await
            .with_context(|| format!("no watch event within {TIMEOUT:?}"))?;
        let now = Instant::now();
        match event.context("the watch ended")? {
            Observed::Upsert(Summary { key, annotated }) => {
                let times = self.times.entry(key).or_default();
                times.came.get_or_insert(now);
                if annotated && times.annotated.is_none() {
                    times.annotated = Some(now);
                    self.annotated += 1;
                    self.last = now;
                }
            }
            Observed::Listed => return Ok(true),
            Observed::Malformed { object, error } => bail!("cannot parse {object}: {error}"),
            Observed::Failed(why) => eprintln!("  bare watch failed; retrying: {why}"),
            _ => {}
        }
        Ok(false)
    }
}
