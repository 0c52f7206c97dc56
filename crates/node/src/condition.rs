//! The node condition `k8s.ovn.org/NodeNetworkReady`.

use serde_json::{Value, json};

use crate::own_node::NodeCondition;
use crate::readiness::State;

pub(crate) const CONDITION: &str = objects::NETWORK_READY;

/// In characters. Kubernetes allows more, but longer messages are not read.
const MAX_MESSAGE: usize = 1000;

pub(crate) fn desired(state: &State) -> NodeCondition {
    match state {
        Ok(()) => NodeCondition {
            status: "True".into(),
            reason: "Ready".into(),
            message: "pods can be connected on this node".into(),
        },
        Err(why) => NodeCondition {
            status: "False".into(),
            reason: "NotReady".into(),
            message: why.chars().take(MAX_MESSAGE).collect(),
        },
    }
}

/// The condition's part of a strategic merge patch of the Node's status.
pub(crate) fn patch(desired: &NodeCondition, before: Option<&NodeCondition>) -> Value {
    let now = kubernetes::timestamp();
    let mut condition = json!({
        "type": CONDITION,
        "status": desired.status,
        "reason": desired.reason,
        "message": desired.message,
        "lastHeartbeatTime": now,
    });
    if before.is_none_or(|before| before.status != desired.status) {
        condition["lastTransitionTime"] = json!(now);
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let (good, bad) = (desired(&Ok(())), desired(&Err("x".repeat(5000))));
        assert_eq!(bad.message.len(), MAX_MESSAGE);
        assert!(patch(&bad, Some(&good)).get("lastTransitionTime").is_some());
        assert!(patch(&bad, None).get("lastTransitionTime").is_some());
        let other = desired(&Err("other".into()));
        assert!(patch(&other, Some(&bad)).get("lastTransitionTime").is_none());
    }
}
