//! The node's condition: why it is not ready, where an operator looks.

use serde_json::{Value, json};

use crate::own_node::Stated;
use crate::readiness::State;

/// The condition's type.
pub const CONDITION: &str = topology::objects::NETWORK_READY;

/// Kubernetes allows more, but nobody reads more.
const LONGEST_MESSAGE: usize = 1000;

/// What the condition shall say.
pub(crate) fn wanted(state: &State) -> Stated {
    match state {
        Ok(()) => {
            Stated { status: "True".into(), reason: "Ready".into(), message: "pods can be wired on this node".into() }
        }
        Err(why) => Stated {
            status: "False".into(),
            reason: "NotReady".into(),
            message: why.chars().take(LONGEST_MESSAGE).collect(),
        },
    }
}

/// The condition as a part of a strategic merge patch of the node's status.
pub(crate) fn patch(wanted: &Stated, before: Option<&Stated>) -> Value {
    let now = kubernetes::timestamp();
    let mut condition = json!({
        "type": CONDITION,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastHeartbeatTime": now,
    });
    if before.is_none_or(|before| before.status != wanted.status) {
        condition["lastTransitionTime"] = json!(now);
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transition_is_told_only_when_the_status_changes() {
        let (good, bad) = (wanted(&Ok(())), wanted(&Err("x".repeat(5000))));
        assert_eq!(bad.message.len(), LONGEST_MESSAGE);
        assert!(patch(&bad, Some(&good)).get("lastTransitionTime").is_some());
        assert!(patch(&bad, None).get("lastTransitionTime").is_some());
        let other = wanted(&Err("other".into()));
        assert!(patch(&other, Some(&bad)).get("lastTransitionTime").is_none());
    }
}
