//! The node's own object: what the controller gave it, and what we said of it before.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubernetes::{Api, Observed, Resource, watch};
use netmodel::Prefix;
use serde::Deserialize;
use tokio::sync::watch as cell;
use topology::objects::NodeFacts;

use crate::condition::CONDITION;

/// Our annotations.
const PREFIX: &str = "k8s.ovn.org/";

/// What we know of the node's object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnNode {
    /// Its identity.
    pub uid: String,
    /// The networks of its pods; empty while the controller gave it none.
    pub subnets: Vec<Prefix>,
    /// Why its networks cannot be read.
    pub broken: Option<String>,
    /// The annotations that are the network's.
    pub annotations: BTreeMap<String, String>,
    /// Our condition, as it stands there.
    pub condition: Option<Stated>,
}

/// A condition, as it stands on the object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Stated {
    /// True, False or Unknown.
    pub status: String,
    /// In one word.
    #[serde(default)]
    pub reason: String,
    /// For people.
    #[serde(default)]
    pub message: String,
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
    stated: Stated,
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
        condition: object.status.conditions.into_iter().find(|one| one.kind == CONDITION).map(|one| one.stated),
    })
}

/// Follows the node's object, for as long as somebody looks.
pub fn follow(api: &Api, name: &str) -> cell::Receiver<Option<Arc<OwnNode>>> {
    let (tell, told) = cell::channel(None);
    let mut events = watch(api, Resource::all("/api/v1", "nodes").fields(&format!("metadata.name={name}")), parse);
    let name = name.to_owned();
    tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = tell.closed() => return,
            };
            match event {
                None => return,
                Some(Observed::Upsert(node)) => {
                    tell.send_if_modified(|before| {
                        let changed = before.as_deref() != Some(&node);
                        if changed {
                            *before = Some(Arc::new(node));
                        }
                        changed
                    });
                }
                Some(Observed::Unreadable { error, .. }) => {
                    tracing::warn!(name, error, "the node's object cannot be read");
                }
                Some(Observed::Trouble(why)) => tracing::warn!(name, why, "the node's object cannot be watched"),
                // What it had stays: its pods go on, and its successor may have the same networks.
                Some(Observed::Deleted(_)) => tracing::warn!(name, "the node's object is gone"),
                Some(Observed::Relisting | Observed::Listed | Observed::Resumed | Observed::Absent) => {}
            }
        }
    });
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_read_and_the_rest_is_dropped() {
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
