//! Random NetworkPolicies of all shapes.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::blocks::{block, interesting};
use super::rng::Rng;
use super::vocabulary::{NAMESPACE_LABELS, POD_LABELS, PORT_NAMES, PORTS, PROTOCOLS, selector, some_list};

/// Up to six NetworkPolicies for these namespaces, nodes and pods.
pub fn network_policies(rng: &mut Rng, objects: &[Value]) -> Vec<Value> {
    let pods: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "Pod").collect();
    let addresses = interesting(objects);
    // The maximum of two draws, so that clusters without policies are rare.
    let count = rng.below(7).max(rng.below(7));
    let policy = |number: usize, rng: &mut Rng| {
        // A namespace with pods: in an empty one the policy would select nothing.
        let namespace = &rng.pick(&pods)["metadata"]["namespace"];
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": { "namespace": namespace, "name": format!("np{number}") },
            "spec": spec(rng, &addresses),
        })
    };
    (0..count).map(|number| policy(number, rng)).collect()
}

fn spec(rng: &mut Rng, addresses: &[IpAddr]) -> Value {
    let all_pods = rng.percent(40);
    let mut spec = json!({ "podSelector": if all_pods { json!({}) } else { selector(rng, POD_LABELS) } });
    match rng.below(6) {
        0 => spec["policyTypes"] = json!(["Ingress"]),
        1 => spec["policyTypes"] = json!(["Egress"]),
        2 | 3 => spec["policyTypes"] = json!(["Ingress", "Egress"]),
        _ => {}
    }
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        if let Some(rules) = some_list(rng, (20, 15), 3, |rng| rule(rng, peers, addresses)) {
            spec[direction] = rules;
        }
    }
    spec
}

fn rule(rng: &mut Rng, peers: &str, addresses: &[IpAddr]) -> Value {
    let mut rule = json!({});
    if let Some(list) = some_list(rng, (8, 2), 2, |rng| peer(rng, addresses)) {
        rule[peers] = list;
    }
    if let Some(list) = some_list(rng, (35, 5), 3, port) {
        rule["ports"] = list;
    }
    rule
}

fn peer(rng: &mut Rng, addresses: &[IpAddr]) -> Value {
    match rng.below(4) {
        0 => json!({ "podSelector": selector(rng, POD_LABELS) }),
        1 => json!({ "namespaceSelector": selector(rng, NAMESPACE_LABELS) }),
        2 => json!({
            "namespaceSelector": selector(rng, NAMESPACE_LABELS),
            "podSelector": selector(rng, POD_LABELS),
        }),
        _ => {
            let (cidr, except) = block(rng, addresses);
            let mut block = json!({ "cidr": cidr });
            if !except.is_empty() {
                block["except"] = json!(except);
            }
            json!({ "ipBlock": block })
        }
    }
}

fn port(rng: &mut Rng) -> Value {
    let mut port = json!({});
    if rng.percent(65) {
        port["protocol"] = json!(rng.pick(PROTOCOLS));
    }
    match rng.below(10) {
        0..3 => port["port"] = json!(rng.pick(PORTS)),
        3..5 => {
            port["port"] = json!(rng.pick(&[1, 80, 81, 400]));
            port["endPort"] = json!(rng.pick(&[443, 8080, 65535]));
        }
        5..8 => port["port"] = json!(rng.pick(PORT_NAMES)),
        _ => {}
    }
    port
}
