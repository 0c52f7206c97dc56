//! AdminNetworkPolicies in a few shapes and priorities, so that they conflict.

use objects::ObjectKind;
use serde_json::{Value, json};

use super::api::{Api, Key};

/// One of a few specs; the baseline has neither priorities nor `Pass`.
pub(crate) fn spec(shape: usize, baseline: bool) -> Value {
    let blue = || json!({"namespaces": {"matchLabels": {"team": "a"}}});
    let everyone = || json!({"namespaces": {}});
    let pods = |label: &str| json!({"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": label}}}});
    let pass = if baseline { "Allow" } else { "Pass" };
    // More levels than one priority has.
    let long: Vec<Value> = (0..40_u16)
        .map(|place| {
            let action = if place % 2 == 0 { "Deny" } else { pass };
            json!({"action": action, "to": [everyone()], "ports": [{"portNumber": {"port": 1000 + place}}]})
        })
        .collect();
    let shapes = [
        json!({"subject": everyone(), "ingress": [{"action": "Deny", "from": [pods("a")]}]}),
        json!({"subject": pods("b"), "ingress": [{"action": pass, "from": [blue()]}, {"action": "Deny", "from": [everyone()]}],
            "egress": [{"action": "Allow", "to": [{"nodes": {}}, {"networks": ["10.0.0.0/8", "fd00::/8"]}]}]}),
        json!({"subject": blue(), "egress": [{"action": "Deny", "to": [{"nodes": {"matchLabels": {"role": "a"}}}],
            "ports": [{"portNumber": {"port": 6443}}]}]}),
        json!({"subject": everyone(), "ingress": [{"action": "Allow", "from": [blue()], "ports": [{"namedPort": "http"}]}],
            "egress": [{"action": "Deny", "to": [pods("a")], "ports": [{"namedPort": "http"}]}]}),
        json!({"subject": pods("a"), "egress": long}),
        json!({"subject": everyone()}),
    ];
    let mut spec = shapes[shape % shapes.len()].clone();
    if !baseline {
        spec["priority"] = json!([0, 1, 2, 2, 999, 1000][shape / shapes.len() % 6]);
    }
    spec
}

/// Number 0 is the baseline.
pub(crate) fn key(number: usize) -> Key {
    match number {
        0 => (ObjectKind::BaselinePolicy, String::new(), "default".into()),
        _ => (ObjectKind::AdminPolicy, String::new(), format!("admin{number}")),
    }
}

/// Creates or changes a policy.
pub(crate) fn put(api: &mut Api, number: usize, spec: Value) {
    let key = key(number);
    if !api.create(key.0, "", &key.2, json!({"metadata": {}, "spec": spec})) {
        api.change(&key, |policy| policy["spec"] = spec);
    }
}
