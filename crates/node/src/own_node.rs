//! The agent's own Node object: subnets from the controller, and the agent's earlier annotations and condition.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubernetes::{Api, Observed, Resource, watch};
use netmodel::Prefix;
use objects::NodeFacts;
use serde::Deserialize;
use tokio::sync::watch as cell;

use crate::condition::CONDITION;

/// Prefix of the annotations that are kept.
const PREFIX: &str = "k8s.ovn.org/";

/// Facts of the Node object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OwnNode {
    pub(crate) uid: String,
    /// Subnets of its pods; empty until the controller has allocated them.
    pub(crate) subnets: Vec<Prefix>,
    /// Why the annotation with the subnets is invalid.
    pub(crate) broken: Option<String>,
    /// Annotations with the prefix `k8s.ovn.org/`.
    pub(crate) annotations: BTreeMap<String, String>,
    /// `k8s.ovn.org/NodeNetworkReady`, if it exists.
    pub(crate) condition: Option<NodeCondition>,
}

/// The fields of a condition that decide whether it must be written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct NodeCondition {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    condition: NodeCondition,
}

fn parse(json: &str) -> Result<OwnNode, String> {
    let object: Object = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let facts = NodeFacts::parse(json)?;
    let annotations = object.metadata.annotations.into_iter().filter(|(key, _)| key.starts_with(PREFIX)).collect();
    Ok(OwnNode {
        uid: object.metadata.uid,
        subnets: facts.subnets.valid().cloned().unwrap_or_default(),
        broken: facts.subnets.broken().map(str::to_owned),
        annotations,
        condition: object.status.conditions.into_iter().find(|one| one.kind == CONDITION).map(|one| one.condition),
    })
}

/// Watches the Node object until the receiver is dropped.
pub(crate) fn watch_node(api: &Api, name: &str) -> cell::Receiver<Option<Arc<OwnNode>>> {
    let (sender, receiver) = cell::channel(None);
    let mut events = watch(api, Resource::all("/api/v1", "nodes").fields(&format!("metadata.name={name}")), parse);
    let name = name.to_owned();
    tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = sender.closed() => return,
            };
            match event {
                None => return,
                Some(Observed::Upsert(node)) => {
                    sender.send_if_modified(|before| {
                        let changed = before.as_deref() != Some(&node);
                        if changed {
                            *before = Some(Arc::new(node));
                        }
                        changed
                    });
                }
                Some(Observed::Malformed { error, .. }) => {
                    tracing::warn!(node = name, error, "cannot read the Node object; keeping its last valid version");
                }
                Some(Observed::Failed(error)) => {
                    tracing::warn!(node = name, error, "watch of the Node failed; retrying");
                }
                // The facts stay: pods continue, and a new Node object may get the same subnets.
                Some(Observed::Deleted(_)) => {
                    tracing::warn!(node = name, "the Node object was deleted; keeping its last version");
                }
                Some(Observed::Relisting | Observed::Listed | Observed::Resumed | Observed::Absent) => {}
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_annotations_and_the_condition_are_parsed() {
        let node = parse(
            r#"{"metadata":{"name":"n1","uid":"u","annotations":{"other":"x","k8s.ovn.org/node-subnets":"{\"default\":[\"10.128.0.0/23\"]}"}},
                "status":{"conditions":[{"type":"Ready","status":"True"},
                    {"type":"k8s.ovn.org/NodeNetworkReady","status":"False","reason":"NotReady","message":"why"}]}}"#,
        )
        .unwrap();
        assert_eq!(node.subnets, ["10.128.0.0/23".parse().unwrap()]);
        assert_eq!(node.annotations.len(), 1);
        assert_eq!(node.condition.unwrap().message, "why");
        assert!(parse("{}").is_err());
    }
}
