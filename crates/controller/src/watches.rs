//! The watches of all kinds, forwarded to the control loop as the engine takes them.

use std::sync::Arc;

use kubernetes::{Api, Identity, Resource, Watch, watch};
use objects::{ObjectKey, ObjectKind};
use tokio::sync::mpsc;
use topology::engine::{ObjectRef, Observed};

/// Most events to forward at once.
const BATCH: usize = 512;

/// What the watches of all resources report to the control loop.
#[derive(Debug)]
pub(crate) enum WatchEvent {
    /// Events of objects of one kind.
    Objects(Vec<Observed>),
    /// The watch of a kind failed, with the error; it is retried.
    Failed(ObjectKind, String),
    /// The watch of a kind that had failed works again.
    Resumed(ObjectKind),
    /// The watch task of this resource ended, which is a bug.
    Ended(&'static str),
}

/// Starts the watches. Events are in order within each kind only.
pub(crate) fn start(api: &Api) -> mpsc::Receiver<WatchEvent> {
    let (sender, events) = mpsc::channel(ObjectKind::ALL.len());
    for kind in ObjectKind::ALL {
        let watch = watch(api, Resource::at(kind.collection()), Observed::reader(kind));
        tokio::spawn(forward(watch, kind, sender.clone()));
    }
    events
}

async fn forward(mut watch: Watch<Observed>, kind: ObjectKind, sender: mpsc::Sender<WatchEvent>) {
    let plural = kind.plural();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        if watch.next_batch(&mut batch, BATCH).await == 0 {
            let _ = sender.send(WatchEvent::Ended(plural)).await;
            return;
        }
        let mut objects = Vec::with_capacity(batch.len());
        for event in batch.drain(..) {
            match event {
                kubernetes::Observed::Relisting => objects.push(Observed::Relisting(kind)),
                kubernetes::Observed::Upsert(observed) => objects.push(observed),
                kubernetes::Observed::Deleted(identity) => objects.push(gone(kind, &identity)),
                kubernetes::Observed::Listed => objects.push(Observed::Listed(kind)),
                kubernetes::Observed::Malformed { object, error } => {
                    objects.push(Observed::Malformed(kind, reference(kind, &object), error));
                }
                kubernetes::Observed::Failed(error) => {
                    tracing::warn!(resource = plural, error, "watch failed; retrying");
                    if sender.send(WatchEvent::Failed(kind, error)).await.is_err() {
                        return;
                    }
                    continue;
                }
                kubernetes::Observed::Resumed => {
                    tracing::info!(resource = plural, "watch resumed");
                    if sender.send(WatchEvent::Resumed(kind)).await.is_err() {
                        return;
                    }
                    continue;
                }
                // The type is not installed: there are none until it is.
                kubernetes::Observed::Absent if kind.is_optional() => {
                    tracing::info!(resource = plural, "resource type not installed; assuming none exist until it is");
                    objects.extend([Observed::Relisting(kind), Observed::Listed(kind)]);
                }
                // Every cluster has these: the server is not a Kubernetes API server.
                kubernetes::Observed::Absent => {
                    let error = "the server does not know this resource type".to_owned();
                    tracing::warn!(resource = plural, error, "watch failed; retrying");
                    if sender.send(WatchEvent::Failed(kind, error)).await.is_err() {
                        return;
                    }
                    continue;
                }
            }
        }
        if !objects.is_empty() && sender.send(WatchEvent::Objects(objects)).await.is_err() {
            return;
        }
    }
}

fn gone(kind: ObjectKind, identity: &Identity) -> Observed {
    let uid = (!identity.uid.is_empty()).then(|| identity.uid.as_str().into());
    Observed::Gone(kind, Arc::new(ObjectKey::new(&identity.namespace, &identity.name)), uid)
}

fn reference(kind: ObjectKind, identity: &Identity) -> ObjectRef {
    ObjectRef {
        kind: kind.name(),
        namespace: (!identity.namespace.is_empty()).then(|| identity.namespace.as_str().into()),
        name: identity.name.as_str().into(),
        uid: identity.uid.as_str().into(),
    }
}
