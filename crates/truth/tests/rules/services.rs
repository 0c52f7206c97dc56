//! Services.

use serde_json::{Value, json};
use truth::{Cluster, Family, Protocol, Service};

use crate::world::{cluster, place};

fn service(spec: &Value) -> Value {
    json!({"kind": "Service", "metadata": {"namespace": "a", "name": "s"}, "spec": spec})
}

fn ordinary() -> Value {
    service(&json!({"clusterIPs": ["172.30.0.1", "fd30::1"], "ports": [
        {"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]}))
}

fn slice(name: &str, ports: &Value, endpoints: &Value) -> Value {
    json!({"kind": "EndpointSlice", "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
        "metadata": {"namespace": "a", "name": name, "labels": {"kubernetes.io/service-name": "s"}}})
}

fn http() -> Value {
    json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
}

/// The endpoints for TCP port 80 over IPv4, each as address and port; none if it is rejected.
fn chosen(cluster: &Cluster, from: &str) -> Vec<String> {
    match cluster.service(&place(from), ("a", "s"), Protocol::Tcp, 80, Family::V4) {
        Service::Unknown(problem) => panic!("{problem}"),
        Service::Rejected => Vec::new(),
        Service::Endpoints(endpoints) => {
            endpoints.iter().map(|endpoint| format!("{}:{}", endpoint.address, endpoint.port)).collect()
        }
    }
}

#[test]
fn slices_are_merged_and_endpoints_deduplicated() {
    let one = slice(
        "s1",
        &http(),
        &json!([{"addresses": ["10.0.2.1"]}, {"addresses": ["10.0.1.1"], "conditions": {"ready": true}}]),
    );
    let two = slice("s2", &json!([{"name": "http", "port": 9090}]), &json!([{"addresses": ["10.0.2.1"]}]));
    let again = slice("s3", &http(), &json!([{"addresses": ["10.0.1.1"]}]));
    let cluster = cluster(&[ordinary(), one, two, again]);
    assert_eq!(chosen(&cluster, "b/web"), ["10.0.1.1:8080", "10.0.2.1:8080", "10.0.2.1:9090"]);
}

#[test]
fn endpoints_are_mapped_to_pods_nodes_or_addresses() {
    let endpoints =
        json!([{"addresses": ["10.0.1.1"]}, {"addresses": ["172.18.0.2"]}, {"addresses": ["198.51.100.7"]}]);
    let cluster = cluster(&[ordinary(), slice("s", &http(), &endpoints)]);
    let found = cluster.service(&place("b/web"), ("a", "s"), Protocol::Tcp, 80, Family::V4);
    let Service::Endpoints(found) = found else { panic!("{found:?}") };
    let places: Vec<_> = found.into_iter().map(|endpoint| endpoint.place).collect();
    assert_eq!(places, [place("a/web"), place("n2"), place("198.51.100.7")]);
}

#[test]
fn slice_ports_match_by_name_and_family() {
    let nameless = slice("s1", &json!([{"port": 1}]), &json!([{"addresses": ["10.0.1.1"]}]));
    let other =
        slice("s2", &json!([{"name": "dns", "port": 2, "protocol": "UDP"}]), &json!([{"addresses": ["10.0.1.1"]}]));
    let wrong =
        slice("s3", &json!([{"name": "http", "port": 3, "protocol": "UDP"}]), &json!([{"addresses": ["10.0.1.1"]}]));
    let six = slice("s4", &http(), &json!([{"addresses": ["fd01::1"]}]));
    let mut foreign = slice("s5", &http(), &json!([{"addresses": ["10.0.1.1"]}]));
    foreign["metadata"]["namespace"] = json!("b");
    assert!(chosen(&cluster(&[ordinary(), nameless, other, wrong, six, foreign]), "b/web").is_empty());
}

#[test]
fn terminating_endpoints_serve_only_as_a_fallback() {
    let ready = json!({"addresses": ["10.0.1.1"]});
    let waiting = json!({"addresses": ["10.0.1.2"], "conditions": {"ready": false}});
    let ending =
        json!({"addresses": ["10.0.2.1"], "conditions": {"ready": false, "serving": true, "terminating": true}});
    let ended =
        json!({"addresses": ["10.0.2.2"], "conditions": {"ready": false, "serving": false, "terminating": true}});
    let with = |endpoints: Value| chosen(&cluster(&[ordinary(), slice("s", &http(), &endpoints)]), "b/web");
    assert_eq!(with(json!([ready, waiting, ending, ended])), ["10.0.1.1:8080"]);
    assert_eq!(with(json!([waiting, ending, ended])), ["10.0.2.1:8080"]);
    assert!(with(json!([waiting, ended])).is_empty());
    assert!(with(json!([])).is_empty());
}

#[test]
fn internal_traffic_policy_local_uses_the_senders_node() {
    let local = service(&json!({"clusterIP": "172.30.0.1", "internalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80}]}));
    let ending = json!({"ready": false, "serving": true, "terminating": true});
    let endpoints = json!([{"addresses": ["10.0.1.1"], "nodeName": "n1"}, {"addresses": ["10.0.9.9"]},
        {"addresses": ["10.0.2.1"], "nodeName": "n2", "conditions": ending}]);
    let cluster = cluster(&[local, slice("s", &http(), &endpoints)]);
    assert_eq!(chosen(&cluster, "c/lone"), ["10.0.1.1:8080"]);
    assert_eq!(chosen(&cluster, "n1"), ["10.0.1.1:8080"]);
    assert_eq!(
        chosen(&cluster, "b/web"),
        ["10.0.2.1:8080"],
        "a terminating local endpoint is used if it is the only one"
    );
    assert!(chosen(&cluster, "198.51.100.7").is_empty());
}

#[test]
fn a_service_without_the_address_or_port_is_unknown() {
    let ask = |spec: Value, protocol, port, family| {
        let found = cluster(&[service(&spec)]).service(&place("b/web"), ("a", "s"), protocol, port, family);
        matches!(found, Service::Unknown(_))
    };
    let port = json!([{"port": 80}]);
    let usual = json!({"clusterIP": "172.30.0.1", "clusterIPs": ["172.30.0.1"], "ports": port});
    assert!(!ask(usual.clone(), Protocol::Tcp, 80, Family::V4));
    assert!(ask(usual.clone(), Protocol::Udp, 80, Family::V4));
    assert!(ask(usual.clone(), Protocol::Tcp, 81, Family::V4));
    assert!(ask(usual, Protocol::Tcp, 80, Family::V6));
    assert!(ask(json!({"clusterIP": "None", "ports": port}), Protocol::Tcp, 80, Family::V4));
    assert!(ask(json!({"type": "ExternalName", "externalName": "x"}), Protocol::Tcp, 80, Family::V4));
}
