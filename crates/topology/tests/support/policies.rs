//! NetworkPolicies in a few shapes that share selectors, and deletion of namespaces with their contents.

use objects::ObjectKind;
use serde_json::{Value, json};

use super::api::Api;

/// One of a few specs.
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

/// Deletes a namespace and its contents, policies before pods: the worst order.
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
