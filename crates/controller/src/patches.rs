//! What is asked of the API and written to it, many at a time. A slow one gives its place to others and goes on.

use std::sync::Arc;
use std::time::Duration;

use kubernetes::{Api, ApiError, Patch};
use ovsdb::client::Client;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;
use topology::Engine;
use topology::engine::{ObjectRef, PatchOutcome};
use topology::identity::{Name, Owner};
use topology::objects::{Condition, NamespaceFacts, POD_NETWORKS, READY, network_condition};
use topology::store::ObjectKind;

use crate::databases;
use crate::metrics::Metrics;

/// So many run at a time, of those that are not slow.
const AT_ONCE: usize = 32;
/// Who takes longer than this is slow: perhaps a webhook is, and the others shall not wait for it.
const SLOW: Duration = Duration::from_secs(1);

/// A question that was not answered is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Who says what in a status that several write.
const FIELD_MANAGER: &str = "ovnkube";

/// An answer of the API.
#[derive(Debug)]
pub(crate) enum Answer {
    /// What became of annotations.
    Patched { owner: Owner, uid: String, outcome: PatchOutcome },
    /// What became of a node's condition.
    NodeNetwork { name: Box<str>, uid: String, outcome: PatchOutcome },
    /// Whether a chassis could be removed.
    Chassis { name: Box<str>, removed: bool },
    /// A namespace as it is; nothing if there is none.
    Namespace { name: Name, question: u64, found: Option<NamespaceFacts> },
}

impl Answer {
    /// Tells the engine.
    pub(crate) fn tell(self, engine: &mut Engine, metrics: &Metrics, now: Duration) {
        match self {
            Self::Patched { owner, uid, outcome } => {
                if outcome == PatchOutcome::Failed {
                    metrics.retries.inc();
                }
                engine.patched(&owner, &uid, outcome, now);
            }
            Self::NodeNetwork { name, uid, outcome } => {
                if outcome == PatchOutcome::Failed {
                    metrics.retries.inc();
                }
                engine.node_network_written(&name, &uid, outcome, now);
            }
            Self::Chassis { name, removed } => engine.chassis_removed(&name, removed, now),
            Self::Namespace { name, question, found } => {
                engine.namespace_looked_at(&name, question, found.as_ref(), now);
            }
        }
    }
}

/// Sends patches.
#[derive(Debug, Clone)]
pub(crate) struct Patches {
    api: Api,
    places: Arc<Semaphore>,
    answers: mpsc::UnboundedSender<Answer>,
}

impl Patches {
    pub(crate) fn new(api: &Api) -> (Self, mpsc::UnboundedReceiver<Answer>) {
        let (answers, receiver) = mpsc::unbounded_channel();
        (Self { api: api.clone(), places: Arc::new(Semaphore::new(AT_ONCE)), answers }, receiver)
    }

    /// Writes annotations onto the object of this identity, and no other. A pod's network is recorded in its status by the
    /// same patch: tenants may write annotations, and not the status, so that is what agents believe.
    pub(crate) fn annotate(&self, owner: Owner, object: &ObjectRef, annotations: &[(&'static str, String)]) {
        let record = annotations.iter().find(|(key, _)| *key == POD_NETWORKS).map(|(_, network)| {
            let mut condition = network_condition(network);
            condition["lastTransitionTime"] = json!(kubernetes::timestamp());
            condition
        });
        let annotations: serde_json::Map<String, serde_json::Value> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let mut body = json!({ "metadata": { "uid": &*object.uid, "annotations": annotations } });
        if let Some(condition) = record {
            body["status"]["conditions"] = json!([condition]);
        }
        // Strategic: the conditions of others stay.
        self.answered(owner, object, status_path(object), Patch::Strategic, body.to_string());
    }

    /// Writes a policy's condition, onto the object of this identity and no other. What else its status says, by other
    /// writers, stays: the server keeps apart who said what.
    pub(crate) fn condition(&self, owner: Owner, object: &ObjectRef, condition: &Condition) {
        let Some(kind) = ObjectKind::of_name(object.kind) else { return };
        let Condition { ready, reason, message, generation, since } = condition;
        let since = if since.is_empty() { kubernetes::timestamp() } else { since.to_string() };
        let condition = json!({
            "type": READY,
            "status": if *ready { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            "lastTransitionTime": since,
        });
        let body = json!({
            "apiVersion": kind.api_version(),
            "kind": object.kind,
            "metadata": { "name": object.name, "uid": &*object.uid },
            "status": { "conditions": [condition] },
        });
        let path = format!("{}/{}/status?fieldManager={FIELD_MANAGER}&force=true", kind.collection(), object.name);
        self.answered(owner, object, path, Patch::Apply, body.to_string());
    }

    /// Sends something whose outcome somebody waits for.
    fn answered(&self, owner: Owner, object: &ObjectRef, path: String, patch: Patch, body: String) {
        let (sender, uid) = (self.clone(), object.uid.to_string());
        tokio::spawn(async move {
            let outcome = match sender.send(&path, patch, body.into_bytes()).await {
                Ok(()) => PatchOutcome::Done,
                Err(ApiError::NotFound(_) | ApiError::Conflict(_) | ApiError::Gone(_)) => PatchOutcome::ObjectGone,
                Err(error) => {
                    let what = if patch == Patch::Apply { "condition" } else { "annotations" };
                    tracing::warn!(%owner, %error, "its {what} could not be written; trying again");
                    PatchOutcome::Failed
                }
            };
            let _ = sender.answers.send(Answer::Patched { owner, uid, outcome });
        });
    }

    /// Asks for a namespace as it is now, until there is an answer.
    pub(crate) fn look_at_namespace(&self, name: Name, question: u64) {
        let sender = self.clone();
        tokio::spawn(async move {
            let path = format!("/api/v1/namespaces/{name}");
            while !sender.answers.is_closed() {
                let found = match sender.api.get(&path).await {
                    Ok(body) => NamespaceFacts::parse(&String::from_utf8_lossy(&body)).map(Some),
                    Err(ApiError::NotFound(_)) => Ok(None),
                    Err(error) => Err(error.to_string()),
                };
                match found {
                    Ok(found) => {
                        let _ = sender.answers.send(Answer::Namespace { name, question, found });
                        return;
                    }
                    Err(error) => {
                        let what = "it cannot be told whether it is being deleted: its deleted policies stay in force";
                        tracing::warn!(namespace = &*name, error, "{what}; asking again");
                        sleep(ASK_AGAIN).await;
                    }
                }
            }
        });
    }

    /// Sets a node's condition `NetworkUnavailable`; the engine decides whether a failed write is repeated.
    pub(crate) fn node_network(&self, object: &ObjectRef, available: bool, reason: &str, message: &str) {
        let now = kubernetes::timestamp();
        let condition = json!({
            "type": "NetworkUnavailable",
            "status": if available { "False" } else { "True" },
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
            "lastHeartbeatTime": now,
        });
        let body = json!({ "metadata": { "uid": &*object.uid }, "status": { "conditions": [condition] } }).to_string();
        let (sender, path, name) = (self.clone(), status_path(object), object.name.clone());
        let uid = object.uid.to_string();
        tokio::spawn(async move {
            let outcome = match sender.send(&path, Patch::Strategic, body.into_bytes()).await {
                Ok(()) => PatchOutcome::Done,
                Err(ApiError::NotFound(_) | ApiError::Conflict(_) | ApiError::Gone(_)) => PatchOutcome::ObjectGone,
                Err(error) => {
                    tracing::warn!(node = &*name, %error, "cannot write condition NetworkUnavailable; retrying");
                    PatchOutcome::Failed
                }
            };
            let _ = sender.answers.send(Answer::NodeNetwork { name, uid, outcome });
        });
    }

    /// Removes a chassis; the engine decides whether a failed removal is repeated.
    pub(crate) fn forget_chassis(&self, southbound: Client, name: Box<str>) {
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let removed = match databases::forget_chassis(&southbound, &name).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(chassis = &*name, %error, "cannot remove chassis without a node; retrying");
                    false
                }
            };
            let _ = answers.send(Answer::Chassis { name, removed });
        });
    }

    async fn send(&self, path: &str, patch: Patch, body: Vec<u8>) -> Result<(), ApiError> {
        let place = self.places.acquire().await.ok();
        let sending = self.api.patch(path, patch, body);
        tokio::pin!(sending);
        let answer = tokio::select! {
            answer = &mut sending => answer,
            () = sleep(SLOW) => {
                drop(place);
                sending.await
            }
        };
        answer.map(drop)
    }
}

/// Annotations go through the status, for which less must be allowed to us.
fn status_path(object: &ObjectRef) -> String {
    match (&object.namespace, object.kind) {
        (Some(namespace), _) => format!("/api/v1/namespaces/{namespace}/pods/{}/status", object.name),
        (None, _) => format!("/api/v1/nodes/{}/status", object.name),
    }
}
