//! Random namespaces, nodes and pods.

use serde_json::{Value, json};

use super::Options;
use super::rng::Rng;
use super::vocabulary::{NAMESPACE_LABELS, NODE_LABELS, POD_LABELS, PORT_NAMES, PORTS, PROTOCOLS, labels};
use crate::address::Family;

/// Two to four namespaces, two nodes, three to eight pods, at least two of them running on the cluster network.
pub fn pods(rng: &mut Rng, options: Options) -> Vec<Value> {
    let families = options.families;
    let namespaces: Vec<String> = (0..rng.between(2, 4)).map(|number| format!("ns{number}")).collect();
    let mut objects: Vec<Value> = namespaces.iter().map(|name| namespace(rng, name)).collect();
    objects.extend((1..=2).map(|number| node(rng, number, families)));
    let mut first_status = Value::Null;
    for number in 0..rng.between(3, 8) {
        let on_node = rng.between(1, 2);
        let host = number >= 2 && rng.percent(12);
        let completed = number >= 2 && !host && rng.percent(12);
        let addresses: Vec<Value> =
            families.iter().map(|family| json!({ "ip": address(*family, on_node, host, number) })).collect();
        let mut status = json!({ "phase": if completed { "Succeeded" } else { "Running" }, "podIPs": addresses });
        if number == 0 {
            first_status = status.clone();
        }
        if completed && rng.percent(50) {
            // Its address was reused.
            status["podIPs"] = first_status["podIPs"].clone();
        }
        let mut spec = json!({
            "nodeName": format!("n{on_node}"),
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "none", "ports": ports(rng) }],
        });
        if host {
            spec["hostNetwork"] = json!(true);
        }
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": rng.pick(&namespaces),
                "name": format!("p{number}"),
                "labels": labels(rng, POD_LABELS),
            },
            "spec": spec,
            "status": status,
        }));
    }
    objects
}

fn namespace(rng: &mut Rng, name: &str) -> Value {
    let mut labels = labels(rng, NAMESPACE_LABELS);
    // The API server sets this label.
    labels["kubernetes.io/metadata.name"] = json!(name);
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

fn node(rng: &mut Rng, number: usize, families: &[Family]) -> Value {
    let internal = |family: &Family| json!({ "type": "InternalIP", "address": address(*family, number, true, 0) });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": format!("n{number}"), "labels": labels(rng, NODE_LABELS) },
        "status": { "addresses": families.iter().map(internal).collect::<Vec<_>>() },
    })
}

/// The address of a node or host-network pod (`host`), or of a pod on the cluster network.
fn address(family: Family, node: usize, host: bool, pod: usize) -> String {
    match (family, host) {
        (Family::V4, true) => format!("172.18.0.{node}"),
        (Family::V6, true) => format!("fd18::{node}"),
        (Family::V4, false) => format!("10.128.{}.{}", (node - 1) * 2, pod + 3),
        (Family::V6, false) => format!("fd01:0:0:{node}::{:x}", pod + 3),
    }
}

/// The same port name has different numbers on different pods.
fn ports(rng: &mut Rng) -> Value {
    let mut ports = Vec::new();
    for (index, name) in PORT_NAMES.iter().enumerate() {
        if rng.percent(60) {
            let mut port = json!({ "name": name, "containerPort": PORTS[(index + rng.below(3)) % PORTS.len()] });
            if rng.percent(70) {
                port["protocol"] = json!(rng.pick(PROTOCOLS));
            }
            ports.push(port);
        }
    }
    Value::Array(ports)
}
