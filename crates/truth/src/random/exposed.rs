//! Services with node ports and external addresses, some of them conflicting.

use serde_json::{Value, json};

use super::rng::Rng;
use super::vocabulary::STRANGERS;

/// Addresses of an API server outside the nodes.
const API_SERVERS: &[&str] = &["172.18.0.100", "fd18::100"];

/// Addresses in the cluster's own networks: of pods, routers and hosts, and an unused cluster IP.
const OURS: &[&str] =
    &["10.128.0.3", "fd01:0:0:1::3", "100.64.0.2", "fd98::2", "169.254.169.2", "fd69::2", "10.96.200.99", "fd96::c899"];

/// Exposes Services: with conflicting node ports, and with addresses that may be free, another Service's, a node's, an API
/// server's, or of the cluster's own networks.
pub fn expose(rng: &mut Rng, services: &mut [Value], nodes: &[Value]) {
    let mut pool: Vec<String> =
        STRANGERS.iter().chain(API_SERVERS).chain(OURS).map(|text| (*text).to_owned()).collect();
    pool.extend(nodes.iter().flat_map(|node| texts(&node["status"]["addresses"], Some("address"))));
    let cluster_ips: Vec<String> =
        services.iter().flat_map(|service| texts(&service["spec"]["clusterIPs"], None)).collect();
    // Twice, so that conflicts with cluster IPs are frequent.
    pool.extend(cluster_ips.iter().chain(&cluster_ips).filter(|text| *text != "None").cloned());
    for service in services {
        expose_one(rng, service, &pool);
    }
}

fn texts(list: &Value, field: Option<&str>) -> Vec<String> {
    let entries = list.as_array().into_iter().flatten();
    let entries = entries.map(|entry| field.map_or(entry, |field| &entry[field]));
    entries.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn expose_one(rng: &mut Rng, service: &mut Value, pool: &[String]) {
    let kind = *rng.pick(&["ClusterIP", "NodePort", "LoadBalancer"]);
    let spec = &mut service["spec"];
    spec["type"] = json!(kind);
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        match kind != "ClusterIP" && rng.percent(80) {
            // Few node ports, so that they conflict; ports of one Service differ.
            true => port["nodePort"] = json!(30_000 + rng.below(2) * 10 + usize::from(port["protocol"] == "UDP")),
            false => drop(port.as_object_mut().and_then(|port| port.remove("nodePort"))),
        }
    }
    let policy = if rng.percent(50) { "Local" } else { "Cluster" };
    spec["externalTrafficPolicy"] = json!(policy);
    let count = rng.below(4);
    let external: Vec<&String> = (0..count).map(|_| rng.pick(pool)).collect();
    spec["externalIPs"] = json!(external);
    spec["loadBalancerSourceRanges"] =
        if rng.percent(30) { json!(["198.51.100.0/24", "2001:db8::/32"]) } else { json!([]) };
    let ingress: Vec<Value> = (0..rng.below(3))
        .map(|_| json!({ "ip": rng.pick(pool), "ipMode": if rng.percent(20) { "Proxy" } else { "VIP" } }))
        .collect();
    service["status"] = json!({ "loadBalancer": { "ingress": if kind == "LoadBalancer" { ingress } else { vec![] } } });
}

/// The API servers' EndpointSlice, sometimes empty.
pub fn api_server_slice(rng: &mut Rng) -> Value {
    let address = *rng.pick(API_SERVERS);
    let endpoints = if rng.percent(80) { json!([{ "addresses": [address] }]) } else { json!([]) };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "default",
            "name": "kubernetes",
            "labels": { "kubernetes.io/service-name": "kubernetes" },
        },
        "addressType": if address.contains(':') { "IPv6" } else { "IPv4" },
        "endpoints": endpoints,
        "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
    })
}
