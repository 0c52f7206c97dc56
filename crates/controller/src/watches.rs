//! The watches: events of all kinds of objects, as the engine takes them.

use std::sync::Arc;

use kubernetes::{Api, Identity, Resource, Watch, watch};
use tokio::sync::mpsc;
use topology::engine::{ObjectRef, Observed};
use topology::identity::ObjectKey;
use topology::store::ObjectKind;

/// So many events are taken at once at most.
const BATCH: usize = 512;

/// What the watches tell.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Something of the objects.
    Objects(Vec<Observed>),
    /// Whether a kind of object can be watched; why not.
    Trouble(ObjectKind, Option<String>),
    /// A watch ended, which must not be.
    Ended(&'static str),
}

/// Starts the watches. Their events come in order for each kind.
pub(crate) fn start(api: &Api) -> mpsc::Receiver<Seen> {
    let (tell, seen) = mpsc::channel(ObjectKind::ALL.len());
    for kind in ObjectKind::ALL {
        let watch = watch(api, Resource::at(kind.collection()), Observed::reader(kind));
        tokio::spawn(forward(watch, kind, tell.clone()));
    }
    seen
}

async fn forward(mut watch: Watch<Observed>, kind: ObjectKind, tell: mpsc::Sender<Seen>) {
    let plural = kind.plural();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        if watch.next_batch(&mut batch, BATCH).await == 0 {
            let _ = tell.send(Seen::Ended(plural)).await;
            return;
        }
        let mut objects = Vec::with_capacity(batch.len());
        for event in batch.drain(..) {
            match event {
                kubernetes::Observed::Relisting => objects.push(Observed::Relisting(kind)),
                kubernetes::Observed::Upsert(observed) => objects.push(observed),
                kubernetes::Observed::Deleted(identity) => objects.push(gone(kind, &identity)),
                kubernetes::Observed::Listed => objects.push(Observed::Listed(kind)),
                kubernetes::Observed::Unreadable { object, error } => {
                    objects.push(Observed::Unreadable(kind, reference(kind, &object), error));
                }
                kubernetes::Observed::Trouble(why) => {
                    tracing::warn!(resource = plural, why, "cannot be watched");
                    if tell.send(Seen::Trouble(kind, Some(why))).await.is_err() {
                        return;
                    }
                    continue;
                }
                kubernetes::Observed::Resumed => {
                    tracing::info!(resource = plural, "watched again");
                    if tell.send(Seen::Trouble(kind, None)).await.is_err() {
                        return;
                    }
                    continue;
                }
                // Its type is not installed: then there are none, until it is.
                kubernetes::Observed::Absent if kind.is_optional() => {
                    tracing::info!(resource = plural, "the cluster has no such type of object: there are none");
                    objects.extend([Observed::Relisting(kind), Observed::Listed(kind)]);
                }
                // Every cluster has these: then it is no API server that answers.
                kubernetes::Observed::Absent => {
                    let why = "the server does not know this type of object".to_owned();
                    tracing::warn!(resource = plural, why, "cannot be watched");
                    if tell.send(Seen::Trouble(kind, Some(why))).await.is_err() {
                        return;
                    }
                    continue;
                }
            }
        }
        if !objects.is_empty() && tell.send(Seen::Objects(objects)).await.is_err() {
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
