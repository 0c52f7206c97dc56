//! The watches: events of three kinds of objects, as the engine takes them.

use std::sync::Arc;

use kubernetes::{Api, Identity, Resource, Watch, watch};
use tokio::sync::mpsc;
use topology::engine::{ObjectRef, Observed};
use topology::identity::PodKey;
use topology::objects::{NamespaceFacts, NodeFacts, PodFacts};
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
    let (tell, seen) = mpsc::channel(4);
    let nodes = watch(api, Resource::all("/api/v1", "nodes"), NodeFacts::parse);
    let namespaces = watch(api, Resource::all("/api/v1", "namespaces"), NamespaceFacts::parse);
    let pods = watch(api, Resource::all("/api/v1", "pods"), PodFacts::parse);
    tokio::spawn(forward(nodes, ObjectKind::Node, "nodes", Observed::Node, tell.clone()));
    tokio::spawn(forward(namespaces, ObjectKind::Namespace, "namespaces", Observed::Namespace, tell.clone()));
    tokio::spawn(forward(pods, ObjectKind::Pod, "pods", Observed::Pod, tell));
    seen
}

async fn forward<T: Send + 'static>(
    mut watch: Watch<T>,
    kind: ObjectKind,
    plural: &'static str,
    upsert: fn(T) -> Observed,
    tell: mpsc::Sender<Seen>,
) {
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
                kubernetes::Observed::Upsert(facts) => objects.push(upsert(facts)),
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
    let name = identity.name.as_str().into();
    match kind {
        ObjectKind::Node => Observed::NodeGone(name, uid),
        ObjectKind::Namespace => Observed::NamespaceGone(name, uid),
        ObjectKind::Pod => Observed::PodGone(Arc::new(PodKey::new(&identity.namespace, &identity.name)), uid),
    }
}

fn reference(kind: ObjectKind, identity: &Identity) -> ObjectRef {
    ObjectRef {
        kind: match kind {
            ObjectKind::Node => "Node",
            ObjectKind::Namespace => "Namespace",
            ObjectKind::Pod => "Pod",
        },
        namespace: (!identity.namespace.is_empty()).then(|| identity.namespace.as_str().into()),
        name: identity.name.as_str().into(),
        uid: identity.uid.as_str().into(),
    }
}
