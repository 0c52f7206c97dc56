//! Concurrent API calls of effects. A slow call goes on without its permit, so that it does not delay the others.

use std::sync::Arc;
use std::time::Duration;

use kubernetes::{Api, ApiError, Patch};
use objects::{Condition, Name, NamespaceFacts, ObjectKind, POD_NETWORKS, READY, network_condition};
use ovsdb::client::Client;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;
use topology::Engine;
use topology::engine::{ObjectRef, PatchOutcome};
use topology::identity::Owner;

use crate::databases;
use crate::messages::API_WRITE_FAILED;
use crate::metrics::Metrics;

/// Concurrent patches, slow ones not counted.
const MAX_CONCURRENT: usize = 32;
/// A patch that takes longer gives its permit back: a webhook may be slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Delay before a failed namespace check is repeated.
const CHECK_RETRY: Duration = Duration::from_secs(1);
/// Field manager of server-side apply: the status has several writers.
const FIELD_MANAGER: &str = "ovnkube";

/// The result of a call, for the engine.
#[derive(Debug)]
pub(crate) enum ApiResult {
    /// Result of a patch of annotations, or of a policy's condition.
    Patched { owner: Owner, uid: String, outcome: PatchOutcome },
    /// Result of a patch of a node's condition `NetworkUnavailable`.
    NodeNetwork { name: Box<str>, uid: String, outcome: PatchOutcome },
    /// Whether a chassis without a node could be removed.
    Chassis { name: Box<str>, removed: bool },
    /// Result of a namespace check; `found` is none if the namespace does not exist.
    Namespace { name: Name, check: u64, found: Option<NamespaceFacts> },
}

impl ApiResult {
    /// Passes it to the engine.
    pub(crate) fn deliver(self, engine: &mut Engine, metrics: &Metrics, now: Duration) {
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
            Self::Namespace { name, check, found } => {
                engine.namespace_checked(&name, check, found.as_ref(), now);
            }
        }
    }
}

/// Makes the API calls of effects; results come by the channel.
#[derive(Debug, Clone)]
pub(crate) struct ApiWriter {
    api: Api,
    permits: Arc<Semaphore>,
    results: mpsc::UnboundedSender<ApiResult>,
}

impl ApiWriter {
    pub(crate) fn new(api: &Api) -> (Self, mpsc::UnboundedReceiver<ApiResult>) {
        let (results, receiver) = mpsc::unbounded_channel();
        (Self { api: api.clone(), permits: Arc::new(Semaphore::new(MAX_CONCURRENT)), results }, receiver)
    }

    /// Writes annotations on the object with this UID. The same patch records a pod's network in its status: tenants may
    /// write annotations but not the status, so agents trust only the latter.
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
        // A strategic merge keeps the conditions of other writers.
        self.patch(owner, object, status_path(object), Patch::Strategic, body.to_string());
    }

    /// Writes a policy's condition on the object with this UID. Server-side apply keeps the conditions of other writers.
    pub(crate) fn condition(&self, owner: Owner, object: &ObjectRef, condition: &Condition) {
        let Some(kind) = ObjectKind::from_name(object.kind) else { return };
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
        self.patch(owner, object, path, Patch::Apply, body.to_string());
    }

    /// Sends a patch, and its outcome to the engine.
    fn patch(&self, owner: Owner, object: &ObjectRef, path: String, patch: Patch, body: String) {
        let (sender, uid) = (self.clone(), object.uid.to_string());
        tokio::spawn(async move {
            let outcome = match sender.send(&path, patch, body.into_bytes()).await {
                Ok(()) => PatchOutcome::Done,
                Err(ApiError::NotFound(_) | ApiError::Conflict(_) | ApiError::Gone(_)) => PatchOutcome::ObjectGone,
                Err(error) => {
                    let what = if patch == Patch::Apply { "condition" } else { "annotations" };
                    tracing::warn!(%owner, what, %error, "{API_WRITE_FAILED}");
                    PatchOutcome::Failed
                }
            };
            let _ = sender.results.send(ApiResult::Patched { owner, uid, outcome });
        });
    }

    /// Reads a namespace, repeatedly until the API answers.
    pub(crate) fn check_namespace(&self, name: Name, check: u64) {
        let sender = self.clone();
        tokio::spawn(async move {
            let path = format!("/api/v1/namespaces/{name}");
            while !sender.results.is_closed() {
                let found = match sender.api.get(&path).await {
                    Ok(body) => NamespaceFacts::parse(&String::from_utf8_lossy(&body)).map(Some),
                    Err(ApiError::NotFound(_)) => Ok(None),
                    Err(error) => Err(error.to_string()),
                };
                match found {
                    Ok(found) => {
                        let _ = sender.results.send(ApiResult::Namespace { name, check, found });
                        return;
                    }
                    Err(error) => {
                        let kept = "its deleted policies stay in effect";
                        tracing::warn!(namespace = &*name, error, "namespace check failed: {kept}; retrying in 1s");
                        sleep(CHECK_RETRY).await;
                    }
                }
            }
        });
    }

    /// Writes a node's condition `NetworkUnavailable`; the engine decides whether a failed write is retried.
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
            let _ = sender.results.send(ApiResult::NodeNetwork { name, uid, outcome });
        });
    }

    /// Removes a chassis; the engine decides whether a failed removal is retried.
    pub(crate) fn remove_chassis(&self, southbound: Client, name: Box<str>) {
        let results = self.results.clone();
        tokio::spawn(async move {
            let removed = match databases::remove_chassis(&southbound, &name).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(chassis = &*name, %error, "cannot remove chassis without a node; retrying");
                    false
                }
            };
            let _ = results.send(ApiResult::Chassis { name, removed });
        });
    }

    async fn send(&self, path: &str, patch: Patch, body: Vec<u8>) -> Result<(), ApiError> {
        let permit = self.permits.acquire().await.ok();
        let sending = self.api.patch(path, patch, body);
        tokio::pin!(sending);
        let result = tokio::select! {
            result = &mut sending => result,
            () = sleep(SLOW_AFTER) => {
                drop(permit);
                sending.await
            }
        };
        result.map(drop)
    }
}

/// Annotations are written through the status subresource, so that no permission on the object itself is needed.
fn status_path(object: &ObjectRef) -> String {
    match (&object.namespace, object.kind) {
        (Some(namespace), _) => format!("/api/v1/namespaces/{namespace}/pods/{}/status", object.name),
        (None, _) => format!("/api/v1/nodes/{}/status", object.name),
    }
}
