//! Random Services with their EndpointSlices.

use serde_json::{Value, json};

use super::rng::Rng;
use super::vocabulary::PORTS;

/// One to three Services for these pods, each with up to three slices in each family of its addresses.
pub fn services(rng: &mut Rng, objects: &[Value]) -> Vec<Value> {
    let pods: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "Pod").collect();
    let families: Vec<&str> = pods[0]["status"]["podIPs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| if entry["ip"].as_str().unwrap_or_default().contains(':') { "IPv6" } else { "IPv4" })
        .collect();
    let mut made = Vec::new();
    for number in 0..rng.between(1, 3) {
        let metadata = json!({ "namespace": rng.pick(&pods)["metadata"]["namespace"], "name": format!("s{number}") });
        let ports = ports(rng);
        made.push(service(rng, number, &metadata, &families, &ports));
        // A pod has the same conditions in all slices.
        let conditions: Vec<Value> = pods.iter().map(|_| condition(rng)).collect();
        for (index, family) in families.iter().enumerate() {
            for part in 0..rng.below(4) {
                let endpoints: Vec<Value> = (pods.iter().zip(&conditions))
                    .filter(|_| rng.percent(35))
                    .map(|(pod, conditions)| endpoint(pod, index, conditions))
                    .collect();
                made.push(slice(rng, &metadata, family, part, &ports, &endpoints));
            }
        }
    }
    made
}

/// A single port may have no name.
fn ports(rng: &mut Rng) -> Vec<Value> {
    match rng.below(3) {
        0 => vec![json!({ "protocol": rng.pick(&["TCP", "UDP", "SCTP"]), "port": 80 })],
        1 => vec![json!({ "name": "http", "protocol": "TCP", "port": 80 })],
        _ => vec![
            json!({ "name": "one", "protocol": "TCP", "port": 53 }),
            json!({ "name": "two", "protocol": "UDP", "port": 53 }),
        ],
    }
}

fn service(rng: &mut Rng, number: usize, metadata: &Value, families: &[&str], ports: &[Value]) -> Value {
    let address = |family: &&str| match *family {
        "IPv4" => format!("10.96.200.{}", number + 1),
        _ => format!("fd96::c8{:02x}", number + 1),
    };
    let mut spec = if rng.percent(10) {
        json!({ "type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "ports": ports })
    } else {
        let addresses: Vec<String> = families.iter().map(address).collect();
        json!({ "type": "ClusterIP", "clusterIP": addresses[0], "clusterIPs": addresses, "ports": ports })
    };
    spec["ipFamilies"] = json!(families);
    spec["ipFamilyPolicy"] = json!(if families.len() == 2 { "RequireDualStack" } else { "SingleStack" });
    if rng.percent(25) {
        spec["internalTrafficPolicy"] = json!("Local");
    }
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec })
}

fn condition(rng: &mut Rng) -> Value {
    match rng.below(10) {
        0 => json!({}),
        1 => json!({ "ready": false, "serving": false, "terminating": false }),
        2 | 3 => json!({ "ready": false, "serving": true, "terminating": true }),
        4 => json!({ "ready": false, "serving": false, "terminating": true }),
        _ => json!({ "ready": true, "serving": true, "terminating": false }),
    }
}

fn endpoint(pod: &Value, index: usize, conditions: &Value) -> Value {
    json!({
        "addresses": [pod["status"]["podIPs"][index]["ip"]],
        "conditions": conditions,
        "nodeName": pod["spec"]["nodeName"],
    })
}

fn slice(rng: &mut Rng, metadata: &Value, family: &str, part: usize, ports: &[Value], endpoints: &[Value]) -> Value {
    let name = metadata["name"].as_str().unwrap_or_default();
    let mut targets = ports.to_vec();
    for target in &mut targets {
        target["port"] = json!(rng.pick(PORTS));
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": metadata["namespace"],
            "name": format!("{name}-{}-{part}", family.to_lowercase()),
            "labels": { "kubernetes.io/service-name": name },
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": targets,
    })
}
