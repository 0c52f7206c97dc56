//! Random changes of AdminNetworkPolicies and of nodes' labels.

use objects::ObjectKind;
use serde_json::json;

use crate::scenario::Scenario;
use crate::support::admin_policies::{key, put, spec};

impl Scenario {
    /// Changes an AdminNetworkPolicy, the baseline, or a node's label.
    pub(crate) fn change_admin_policies(&mut self) {
        let number = self.rng.below(5);
        match self.rng.below(8) {
            0 | 1 => self.api.delete(&key(number)),
            2 => {
                let nodes = self.api.keys(ObjectKind::Node);
                if let Some(node) = self.rng.pick(&nodes).cloned() {
                    let label = *self.rng.pick(&["a", "b"]).unwrap();
                    self.api.change(&node, |node| node["metadata"]["labels"] = json!({"role": label}));
                }
            }
            3 if self.rng.percent(30) => {
                // Invalid: the last valid version stays, or the policy is not in effect.
                put(&mut self.api, number, json!({"priority": 2000, "subject": {"namespaces": {}}}));
            }
            _ => {
                let spec = spec(self.rng.below(1000), number == 0);
                put(&mut self.api, number, spec);
            }
        }
    }
}
