//! What the node says of itself: annotations that the controller reads, and its condition. Written when it differs from
//! what stands there, and to renew the condition's heartbeat: a restart over an unchanged node writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubernetes::{Api, Note, ObjectReference, Patch, Recorder, Severity};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::condition;
use crate::own_node::OwnNode;
use crate::readiness::State;

/// Annotations by their keys.
pub type Annotations = BTreeMap<&'static str, String>;

const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A reason that lasts shorter than this is not told to the API: parts become ready one after the other, and a restart of
/// the agent is no news.
const SETTLING: Duration = Duration::from_secs(5);

/// What is said, and where.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) api: Api,
    pub(crate) recorder: Recorder,
    pub(crate) name: String,
    pub(crate) node: watch::Receiver<Option<Arc<OwnNode>>>,
    pub(crate) annotations: watch::Receiver<Annotations>,
    pub(crate) state: watch::Receiver<State>,
    /// How many nodes there are: their heartbeats share the API server.
    pub(crate) nodes: watch::Receiver<Option<usize>>,
}

impl Report {
    /// When the heartbeat is due, from now on. It is never due at the start: an agent that keeps crashing renews nothing,
    /// and the controller declares the condition unknown.
    fn next_heartbeat(&self) -> Instant {
        let interval = topology::pacing::heartbeat(self.nodes.borrow().unwrap_or(usize::MAX));
        // Nodes that started together spread out.
        let spread = 90 + self.name.bytes().fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 21);
        Instant::now() + interval * spread / 100
    }

    /// Says it whenever it changes. Never ends.
    pub(crate) async fn run(mut self) {
        let mut pause = PAUSE;
        // Since when it is not ready.
        let mut since: Option<Instant> = None;
        // Until the nodes are counted the longest interval counts.
        let (mut heartbeat, mut counted) = (self.next_heartbeat(), self.nodes.borrow_and_update().is_some());
        loop {
            if !counted && self.nodes.borrow_and_update().is_some() {
                (heartbeat, counted) = (self.next_heartbeat(), true);
            }
            let node = self.node.borrow_and_update().clone();
            let annotations = self.annotations.borrow_and_update().clone();
            let state = self.state.borrow_and_update().clone();
            since = if state.is_ok() { None } else { since.or_else(|| Some(Instant::now())) };
            let settling = since.map(|since| SETTLING.saturating_sub(since.elapsed())).filter(|left| !left.is_zero());
            let told = settling.is_none().then_some(&state);
            let renew = Instant::now() >= heartbeat;
            if let Some(node) = node
                && let Some(body) = difference(&node, &annotations, told, renew)
            {
                // Annotations go through the status, for which less must be allowed to us.
                let path = format!("/api/v1/nodes/{}/status", self.name);
                match self.api.patch(&path, Patch::Strategic, body.to_string().into_bytes()).await {
                    Ok(_) => {
                        pause = PAUSE;
                        if body["status"].is_object() {
                            heartbeat = self.next_heartbeat();
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the node's annotations and condition could not be written; trying again");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                        continue;
                    }
                }
                if let Some(Err(why)) = told
                    && node.condition.as_ref().is_some_and(|before| !before.message.starts_with(why.as_str()))
                {
                    self.recorder.record(note(&self.name, &node.uid, "NodeNetworkNotReady", why));
                }
            }
            // The watch shows what was written: then there is nothing to say, and nothing is said twice.
            let due =
                tokio::time::Instant::from_std(heartbeat).max(tokio::time::Instant::now() + Duration::from_secs(1));
            let ended = tokio::select! {
                changed = self.node.changed() => changed.is_err(),
                changed = self.annotations.changed() => changed.is_err(),
                changed = self.state.changed() => changed.is_err(),
                () = tokio::time::sleep(settling.unwrap_or(Duration::MAX)), if settling.is_some() => false,
                () = tokio::time::sleep_until(due) => false,
                changed = self.nodes.changed(), if !counted => changed.is_err(),
            };
            if ended {
                return;
            }
        }
    }
}

/// The patch that makes the object say what it shall; nothing if it does, unless its heartbeat is to be renewed. Of the state
/// nothing is said while it is not given.
fn difference(node: &OwnNode, annotations: &Annotations, state: Option<&State>, renew: bool) -> Option<Value> {
    let differs = |(key, value): &(&&str, &String)| node.annotations.get(**key) != Some(*value);
    let annotations: Map<String, Value> =
        annotations.iter().filter(differs).map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let wanted = state.map(condition::wanted).filter(|wanted| renew || node.condition.as_ref() != Some(wanted));
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

/// A warning about this node.
pub(crate) fn note(name: &str, uid: &str, reason: &str, why: &str) -> Note {
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
    fn only_what_differs_is_written() {
        let mut node = OwnNode { uid: "u".into(), ..OwnNode::default() };
        let annotations: Annotations = [("k8s.ovn.org/node-chassis-id", "c".to_owned())].into();
        let body = difference(&node, &annotations, Some(&Ok(())), false).unwrap();
        assert_eq!(body["metadata"]["annotations"]["k8s.ovn.org/node-chassis-id"], "c");
        assert_eq!(body["status"]["conditions"][0]["status"], "True");
        node.annotations.insert("k8s.ovn.org/node-chassis-id".into(), "c".into());
        node.condition = Some(condition::wanted(&Ok(())));
        assert_eq!(difference(&node, &annotations, Some(&Ok(())), false), None);
        let body = difference(&node, &annotations, Some(&Err("no uplink".into())), false).unwrap();
        assert_eq!(body["metadata"].get("annotations"), None);
        assert_eq!(body["status"]["conditions"][0]["message"], "no uplink");
        assert_eq!(difference(&node, &annotations, None, true), None);
        let renewed = difference(&node, &annotations, Some(&Ok(())), true).unwrap();
        assert!(renewed["status"]["conditions"][0]["lastHeartbeatTime"].is_string());
        assert_eq!(renewed["status"]["conditions"][0].get("lastTransitionTime"), None);
    }
}
