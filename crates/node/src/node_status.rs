//! Writes the agent's annotations and condition on its own Node, if they differ or the condition's heartbeat is due: a restart
//! of the agent on an unchanged node writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backoff::{Backoff, Retries};
use kubernetes::{Api, Note, ObjectReference, Patch, Recorder, Severity};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::condition::{self, CONDITION};
use crate::own_node::OwnNode;
use crate::readiness::State;

/// Values by annotation key, as they are to be on the Node.
pub(crate) type Annotations = BTreeMap<&'static str, String>;

/// Delay after a failed write. Jittered: all nodes of a cluster may fail at once.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// A node that is not ready for a shorter time is not reported: parts become ready one after the other, and a restart of the
/// agent is not worth reporting.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// Writes the status of the agent's own Node.
#[derive(Debug)]
pub(crate) struct NodeStatusWriter {
    pub(crate) api: Api,
    pub(crate) recorder: Recorder,
    pub(crate) name: String,
    pub(crate) node: watch::Receiver<Option<Arc<OwnNode>>>,
    pub(crate) annotations: watch::Receiver<Annotations>,
    pub(crate) state: watch::Receiver<State>,
    /// Number of nodes, on which the heartbeat's interval depends.
    pub(crate) nodes: watch::Receiver<Option<usize>>,
}

impl NodeStatusWriter {
    /// When the next heartbeat is due. It is never due at the start: an agent that keeps crashing renews nothing, and the
    /// controller sets the condition to `Unknown`.
    fn next_heartbeat(&self) -> Instant {
        let interval = topology::pacing::heartbeat(self.nodes.borrow().unwrap_or(usize::MAX));
        // Spreads nodes that started together.
        let spread = 90 + self.name.bytes().fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 21);
        Instant::now() + interval * spread / 100
    }

    /// Writes every change. Never returns.
    pub(crate) async fn run(mut self) {
        let mut retries = Retries::new(BACKOFF);
        // Since when the node is not ready.
        let mut since: Option<Instant> = None;
        // Until the number of nodes is known, the longest interval.
        let (mut heartbeat, mut counted) = (self.next_heartbeat(), self.nodes.borrow_and_update().is_some());
        loop {
            if !counted && self.nodes.borrow_and_update().is_some() {
                (heartbeat, counted) = (self.next_heartbeat(), true);
            }
            let node = self.node.borrow_and_update().clone();
            let annotations = self.annotations.borrow_and_update().clone();
            let state = self.state.borrow_and_update().clone();
            since = if state.is_ok() { None } else { since.or_else(|| Some(Instant::now())) };
            let delay = since.map(|since| REPORT_AFTER.saturating_sub(since.elapsed())).filter(|left| !left.is_zero());
            let reported = delay.is_none().then_some(&state);
            let renew = Instant::now() >= heartbeat;
            if let Some(node) = node
                && let Some(body) = patch(&node, &annotations, reported, renew)
            {
                // Annotations are written through the status, which needs fewer permissions.
                let path = format!("/api/v1/nodes/{}/status", self.name);
                match self.api.patch(&path, Patch::Strategic, body.to_string().into_bytes()).await {
                    Ok(_) => {
                        retries.reset();
                        if body["status"].is_object() {
                            heartbeat = self.next_heartbeat();
                        }
                    }
                    Err(error) => {
                        let pause = retries.next_delay();
                        tracing::warn!(%error, "cannot write the Node's annotations and condition; retrying in {pause:?}");
                        tokio::time::sleep(pause).await;
                        continue;
                    }
                }
                if let Some(Err(why)) = reported
                    && node.condition.as_ref().is_some_and(|before| !before.message.starts_with(why.as_str()))
                {
                    tracing::warn!(
                        node = self.name,
                        error = why,
                        "node cannot connect pods; set condition {CONDITION} to False"
                    );
                    self.recorder.record(node_event(&self.name, &node.uid, "NodeNetworkNotReady", why));
                }
            }
            // The watch returns what was written, so nothing is written twice.
            let due =
                tokio::time::Instant::from_std(heartbeat).max(tokio::time::Instant::now() + Duration::from_secs(1));
            let ended = tokio::select! {
                changed = self.node.changed() => changed.is_err(),
                changed = self.annotations.changed() => changed.is_err(),
                changed = self.state.changed() => changed.is_err(),
                () = tokio::time::sleep(delay.unwrap_or(Duration::MAX)), if delay.is_some() => false,
                () = tokio::time::sleep_until(due) => false,
                changed = self.nodes.changed(), if !counted => changed.is_err(),
            };
            if ended {
                return;
            }
        }
    }
}

/// The patch of what differs, or of the heartbeat if `renew`; None if there is nothing to write. Without a state the condition
/// is left alone.
fn patch(node: &OwnNode, annotations: &Annotations, state: Option<&State>, renew: bool) -> Option<Value> {
    let differs = |(key, value): &(&&str, &String)| node.annotations.get(**key) != Some(*value);
    let annotations: Map<String, Value> =
        annotations.iter().filter(differs).map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let wanted = state.map(condition::desired).filter(|wanted| renew || node.condition.as_ref() != Some(wanted));
    let conditions = wanted.map(|wanted| condition::patch(&wanted, node.condition.as_ref()));
    if annotations.is_empty() && conditions.is_none() {
        return None;
    }
    let mut body = json!({"metadata": {"uid": node.uid}});
    if !annotations.is_empty() {
        body["metadata"]["annotations"] = Value::Object(annotations);
    }
    if let Some(condition) = conditions {
        body["status"] = json!({"conditions": [condition]});
    }
    Some(body)
}

/// A Warning Event about this node.
pub(crate) fn node_event(name: &str, uid: &str, reason: &str, why: &str) -> Note {
    Note {
        object: ObjectReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            namespace: String::new(),
            name: name.into(),
            uid: uid.into(),
        },
        severity: Severity::Warning,
        reason: reason.into(),
        message: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_written() {
        let mut node = OwnNode { uid: "u".into(), ..OwnNode::default() };
        let annotations: Annotations = [("k8s.ovn.org/node-chassis-id", "c".to_owned())].into();
        let body = patch(&node, &annotations, Some(&Ok(())), false).unwrap();
        assert_eq!(body["metadata"]["annotations"]["k8s.ovn.org/node-chassis-id"], "c");
        assert_eq!(body["status"]["conditions"][0]["status"], "True");
        node.annotations.insert("k8s.ovn.org/node-chassis-id".into(), "c".into());
        node.condition = Some(condition::desired(&Ok(())));
        assert_eq!(patch(&node, &annotations, Some(&Ok(())), false), None);
        let body = patch(&node, &annotations, Some(&Err("no uplink".into())), false).unwrap();
        assert_eq!(body["metadata"].get("annotations"), None);
        assert_eq!(body["status"]["conditions"][0]["message"], "no uplink");
        assert_eq!(patch(&node, &annotations, None, true), None);
        let renewed = patch(&node, &annotations, Some(&Ok(())), true).unwrap();
        assert!(renewed["status"]["conditions"][0]["lastHeartbeatTime"].is_string());
        assert_eq!(renewed["status"]["conditions"][0].get("lastTransitionTime"), None);
    }
}
