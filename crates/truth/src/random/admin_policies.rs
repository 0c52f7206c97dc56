//! Random AdminNetworkPolicies, and a BaselineAdminNetworkPolicy.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::blocks::{block, interesting};
use super::rng::Rng;
use super::vocabulary::{NAMESPACE_LABELS, NODE_LABELS, POD_LABELS, PORT_NAMES, PORTS, PROTOCOLS, selector, some_list};

/// Up to three AdminNetworkPolicies of different priorities, and in half of the clusters the baseline.
pub(super) fn admin_policies(rng: &mut Rng, objects: &[Value]) -> Vec<Value> {
    let addresses = interesting(objects);
    let count = rng.below(4);
    // The API does not define equal priorities; these differ, in another order than their names.
    let step = rng.between(1, 16);
    let mut policies: Vec<Value> = (0..count)
        .map(|number| {
            let mut spec = spec(rng, &["Allow", "Deny", "Deny", "Pass"], &addresses);
            spec["priority"] = json!((number * step + 7) % 17);
            json!({
                "apiVersion": "policy.networking.k8s.io/v1alpha1",
                "kind": "AdminNetworkPolicy",
                "metadata": { "name": format!("anp{number}") },
                "spec": spec,
            })
        })
        .collect();
    if rng.percent(50) {
        policies.push(json!({
            "apiVersion": "policy.networking.k8s.io/v1alpha1",
            "kind": "BaselineAdminNetworkPolicy",
            "metadata": { "name": "default" },
            "spec": spec(rng, &["Allow", "Deny"], &addresses),
        }));
    }
    policies
}

fn spec(rng: &mut Rng, actions: &[&str], addresses: &[IpAddr]) -> Value {
    let subject = pods_or_namespaces(rng);
    let mut spec = json!({ "subject": subject });
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        if let Some(rules) = some_list(rng, (30, 0), 3, |rng| rule(rng, peers, actions, addresses)) {
            spec[direction] = rules;
        }
    }
    spec
}

fn pods_or_namespaces(rng: &mut Rng) -> Value {
    let namespaces = selector(rng, NAMESPACE_LABELS);
    if rng.percent(50) {
        return json!({ "namespaces": namespaces });
    }
    json!({ "pods": { "namespaceSelector": namespaces, "podSelector": selector(rng, POD_LABELS) } })
}

fn rule(rng: &mut Rng, peers: &str, actions: &[&str], addresses: &[IpAddr]) -> Value {
    let count = rng.between(1, 2);
    let list: Vec<Value> = (0..count).map(|_| peer(rng, peers == "to", addresses)).collect();
    let mut rule = json!({ "action": rng.pick(actions), peers: list });
    // The API rejects named ports with nodes or networks.
    let pods_only = rule[peers]
        .as_array()
        .is_some_and(|list| list.iter().all(|peer| peer.get("nodes").is_none() && peer.get("networks").is_none()));
    if let Some(list) = some_list(rng, (50, 0), 2, |rng| port(rng, pods_only)) {
        rule["ports"] = list;
    }
    rule
}

/// Nodes and networks are peers of egress only.
fn peer(rng: &mut Rng, egress: bool, addresses: &[IpAddr]) -> Value {
    match rng.below(6) {
        0 if egress => json!({ "nodes": selector(rng, NODE_LABELS) }),
        1 if egress => {
            let count = rng.between(1, 2);
            json!({ "networks": (0..count).map(|_| block(rng, addresses).0).collect::<Vec<_>>() })
        }
        _ => pods_or_namespaces(rng),
    }
}

fn port(rng: &mut Rng, named: bool) -> Value {
    let protocol = *rng.pick(PROTOCOLS);
    match rng.below(if named { 3 } else { 2 }) {
        0 => json!({ "portNumber": { "protocol": protocol, "port": rng.pick(PORTS) } }),
        1 => {
            json!({ "portRange": { "protocol": protocol, "start": rng.pick(&[1, 80, 81]), "end": rng.pick(&[443, 8080]) } })
        }
        _ => json!({ "namedPort": rng.pick(PORT_NAMES) }),
    }
}
