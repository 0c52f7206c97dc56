//! Random changes of NetworkPolicies and labels.

use objects::ObjectKind;
use serde_json::json;

use crate::scenario::{NAMESPACES, Scenario};
use crate::support::api::Key;
use crate::support::policies;

impl Scenario {
    /// Changes a policy or a label.
    pub(crate) fn change_policies(&mut self, pods: &[Key]) {
        let namespace = (*self.rng.pick(&NAMESPACES).unwrap()).to_owned();
        let of_namespace: Key = (ObjectKind::Namespace, String::new(), namespace.clone());
        let labels = ["a", "b", "c"];
        match self.rng.below(10) {
            0 | 1 => {
                if let Some(key) = self.rng.pick(pods).cloned() {
                    let label = *self.rng.pick(&labels).unwrap();
                    self.api.change(&key, |pod| pod["metadata"]["labels"] = json!({"app": label}));
                }
            }
            2 => {
                let label = *self.rng.pick(&labels).unwrap();
                self.api.change(&of_namespace, |object| object["metadata"]["labels"] = json!({"team": label}));
            }
            3 | 4 => {
                let keys = self.api.keys(ObjectKind::Policy);
                if let Some(key) = self.rng.pick(&keys).cloned() {
                    self.api.delete(&key);
                }
            }
            5 => {
                // Invalid: the last valid version stays, or the pods are isolated.
                let keys = self.api.keys(ObjectKind::Policy);
                if let Some(key) = self.rng.pick(&keys).cloned().filter(|_| self.rng.percent(30)) {
                    let spec = json!({"podSelector": {}, "ingress": [{"ports": [{"port": 70000}]}]});
                    self.api.change(&key, |policy| policy["spec"] = spec);
                }
            }
            _ => {
                // A policy needs a namespace.
                if !self.api.objects.contains_key(&of_namespace) {
                    return;
                }
                let (name, spec) = (format!("policy{}", self.rng.below(4)), policies::spec(self.rng.below(1000)));
                let policy = json!({"metadata": {}, "spec": spec});
                if !self.api.create(ObjectKind::Policy, &namespace, &name, policy) {
                    self.api.change(&(ObjectKind::Policy, namespace, name), |policy| policy["spec"] = spec);
                }
            }
        }
    }
}
