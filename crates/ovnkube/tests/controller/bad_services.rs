//! Services and EndpointSlices that the API server would reject, written to etcd directly.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, LONG_LEASE, TIMEOUT, until};

/// Writes an object to etcd; the API server decodes it on read, without validation.
fn put_unchecked(cluster: &Cluster, resource: &str, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let key = format!("/registry/{resource}/default/{name}");
    // etcd's JSON gateway takes keys and values in base64.
    let body = json!({"key": STANDARD.encode(&key), "value": STANDARD.encode(object.to_string())}).to_string();
    let control = cluster.lab.machine("control").unwrap();
    let mut stream = control.connect("127.0.0.1:2379".parse().unwrap(), TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = "POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Type: application/json\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn uid(name: &str) -> String {
    let number = name.bytes().fold(7u64, |number, byte| number.wrapping_mul(31).wrapping_add(byte.into()));
    format!("00000000-0000-4000-8000-{:012x}", number & 0xffff_ffff_ffff)
}

/// A valid Service with an address in 172.30.5.0/24, with more fields.
fn service(name: &str, last: u8, more: &Value) -> Value {
    let mut spec = json!({"type": "ClusterIP", "clusterIP": format!("172.30.5.{last}"), "sessionAffinity": "None",
        "clusterIPs": [format!("172.30.5.{last}")], "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default", "uid": uid(name),
        "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec, "status": {"loadBalancer": {}}})
}

fn slice(name: &str, service: &str, more: &Value) -> Value {
    let mut slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "uid": uid(name), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.128.0.9"], "conditions": {"ready": true}}]});
    for (key, value) in more.as_object().unwrap() {
        slice[key] = value.clone();
    }
    slice
}

const SERVICES: &str = "services/specs";
const SLICES: &str = "endpointslices";

fn vips(cluster: &Cluster, service: &str) -> Option<String> {
    cluster.value("Load_Balancer", &format!("Service_default/{service}_TCP_cluster"), "vips")
}

/// Invalid fields, and the text that the Event must have.
fn invalid_fields() -> Vec<(&'static str, Value, &'static str)> {
    let twice = |one: Value, two: Value| json!([one, two]);
    vec![
        ("type", json!({"type": "Invalid"}), "spec.type: "),
        ("port", json!({"ports": [{"port": 70_000}]}), "spec.ports[0].port: 70000"),
        ("protocol", json!({"ports": [{"port": 80, "protocol": "ICMP"}]}), "spec.ports[0].protocol: "),
        ("node-port", json!({"ports": [{"port": 80, "nodePort": 70_000}]}), "spec.ports[0].nodePort: 70000"),
        (
            "port-twice",
            json!({"ports": twice(json!({"name": "a", "port": 80}), json!({"name": "b", "port": 80}))}),
            "spec.ports[1].port: ",
        ),
        (
            "name-twice",
            json!({"ports": twice(json!({"name": "a", "port": 80}), json!({"name": "a", "port": 81}))}),
            "spec.ports[1].name: ",
        ),
        ("address", json!({"clusterIPs": ["172.30.5.300"]}), "spec.clusterIPs[0]: "),
        ("external", json!({"externalIPs": ["192.0.2.1", "255.255.255.255"]}), "spec.externalIPs[1]: "),
        (
            "ranges",
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8", "10.0.0.0/64"]}),
            "spec.loadBalancerSourceRanges[1]: ",
        ),
        ("affinity", json!({"sessionAffinity": "Invalid"}), "spec.sessionAffinity: "),
        ("policy", json!({"internalTrafficPolicy": "Invalid"}), "spec.internalTrafficPolicy: "),
        // Valid fields with addresses that cannot be used.
        ("pods", json!({"clusterIPs": ["10.128.0.77"], "clusterIP": "10.128.0.77"}), "spec.clusterIPs: 10.128.0.77"),
        ("elsewhere", json!({"clusterIPs": ["10.9.9.9"], "clusterIP": "10.9.9.9"}), "service-cidrs"),
        ("same", json!({"clusterIPs": ["172.30.5.1"], "clusterIP": "172.30.5.1"}), "taken by Service default/good"),
    ]
}

fn reason(name: &str) -> &'static str {
    match name {
        "pods" => "AddressRefused",
        "elsewhere" => "AddressUnknown",
        "same" => "AddressTaken",
        _ => "ServiceRefused",
    }
}

/// Lesson 21 (okd#1760): one unusual Service put the controller into a crash loop during an upgrade.
#[test]
fn invalid_services_are_parked_and_others_are_served() {
    // The second network has the API server's own Service.
    let cluster = ClusterSpec::new("bad-services")
        .arguments(&["--k8s-service-cidrs", "172.30.0.0/16,10.96.0.0/16"])
        .arguments(&LONG_LEASE)
        .start();
    put_unchecked(&cluster, SERVICES, &service("good", 1, &json!({})));
    put_unchecked(&cluster, SLICES, &slice("good", "good", &json!({})));
    cluster.lead("c1");
    let good = "172.30.5.1:80=10.128.0.9:8080";
    let served = |name: &str, wanted: &str| {
        until(&format!("{name} has {wanted}"), || vips(&cluster, name).filter(|held| held == wanted));
    };
    served("good", good);

    // Invalid from the start: reported, and no rows are created.
    for (number, (name, more, words)) in (10..).zip(invalid_fields()) {
        put_unchecked(&cluster, SERVICES, &service(name, number, &more));
        cluster.event(name, reason(name), &[words]);
        if name != "elsewhere" {
            assert_eq!(vips(&cluster, name), None, "{name}");
        }
    }
    // Invalid after an update: the existing rows stay.
    for (number, (name, more, words)) in
        (40..).zip(invalid_fields()).filter(|(_, (name, ..))| reason(name) == "ServiceRefused")
    {
        let name = format!("later-{name}");
        let vip = format!("172.30.5.{number}:80=");
        put_unchecked(&cluster, SERVICES, &service(&name, number, &json!({})));
        served(&name, &vip);
        put_unchecked(&cluster, SERVICES, &service(&name, number, &more));
        cluster.event(&name, "ServiceRefused", &[words, "the last valid load balancers stay"]);
        served(&name, &vip);
    }
    // Slices.
    for (name, more, words) in [
        ("number", json!({"ports": [{"name": "", "port": 0, "protocol": "TCP"}]}), "ports[0].port: 0"),
        ("kind", json!({"addressType": "Invalid"}), "addressType: "),
        ("family", json!({"addressType": "IPv6"}), "endpoints[0].addresses: 10.128.0.9"),
        ("loopback", json!({"endpoints": [{"addresses": ["127.0.0.1"]}]}), "endpoints[0].addresses: 127.0.0.1"),
        (
            "ports",
            json!({"ports": [{"name": "a", "port": 80, "protocol": "TCP"}, {"name": "a", "port": 81, "protocol": "TCP"}]}),
            "ports[1].name: ",
        ),
    ] {
        put_unchecked(&cluster, SLICES, &slice(name, "good", &more));
        cluster.event("good", "EndpointSliceRefused", &[name, words, "the last valid endpoints stay"]);
        served("good", good);
        cluster.delete("endpointslice", &[name]);
    }
    let parked = || cluster.metric("ovnkube_controller_parked_objects{kind=\"Service\"}");
    until("the parked Services are counted", || (parked() == 25.0).then_some(()));

    // New Services and corrected ones are served.
    put_unchecked(&cluster, SERVICES, &service("better", 2, &json!({})));
    put_unchecked(&cluster, SLICES, &slice("better", "better", &json!({"endpoints": [{"addresses": ["10.128.0.8"]}]})));
    served("better", "172.30.5.2:80=10.128.0.8:8080");
    put_unchecked(&cluster, SERVICES, &service("port", 11, &json!({})));
    served("port", "172.30.5.11:80=");
    until("one less is parked", || (parked() == 24.0).then_some(()));
    assert_eq!(cluster.lab.log("c1").unwrap().matches("\"started leading\"").count(), 1);

    // Another controller takes over, and writes only its sequence value.
    cluster.stop("c1");
    let rows = cluster.rows();
    cluster.lead("c2");
    until("resync complete", || cluster.lab.log("c2").unwrap().contains("resync complete").then_some(()));
    assert_eq!(cluster.rows(), rows);
}
