//! Policies for stories: a few shapes that share selectors with each other, and namespaces that go with all that is in them.

use serde_json::{Value, json};
use topology::store::ObjectKind;

use super::api::Api;

/// One of a few policies.
pub(crate) fn spec(shape: usize) -> Value {
    let shapes = [
        json!({"podSelector": {}}),
        json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{"from": [{"podSelector": {}}]}]}),
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "b"}}},
            {"namespaceSelector": {"matchLabels": {"team": "a"}}}], "ports": [{"port": 80}, {"protocol": "UDP"}]}]}),
        json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
            "policyTypes": ["Egress"], "egress": [{"to": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "a"}}},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.128.0.0/24"]}}, {"ipBlock": {"cidr": "fd00::/8"}}]}]}),
        json!({"podSelector": {}, "ingress": [{"ports": [{"port": "http"}, {"port": 9, "endPort": 12}]}]}),
        json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": "http"}]},
            {"to": [{"podSelector": {"matchLabels": {"app": "b"}}}], "ports": [{"port": "http"}]}]}),
    ];
    shapes[shape % shapes.len()].clone()
}

/// A namespace goes, and what is in it before: policies first, as if to let everything through.
pub(crate) fn delete_namespace(api: &mut Api, name: &str) {
    let key = (ObjectKind::Namespace, String::new(), name.to_owned());
    api.change(&key, |namespace| namespace["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z"));
    for kind in [ObjectKind::Policy, ObjectKind::Pod] {
        for key in api.keys(kind) {
            if key.1 == name {
                api.delete(&key);
            }
        }
    }
    api.delete(&key);
}
