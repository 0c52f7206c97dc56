//! `loadBalancerSourceRanges` and changes of a Service's type, by packets.

use std::net::{IpAddr, SocketAddr};

use lab::{Family, Machine};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::services::{Client, Outcome, Targets, attempt, cluster_ip, service, slice, two_pods, wait_outcome};

/// Routes an address from the outside machine through a node, with a source address.
fn route(outside: &Machine, to: IpAddr, via: IpAddr, from: IpAddr) {
    let family = if to.is_ipv6() { "-6" } else { "-4" };
    let words = [to, via, from].map(|address| address.to_string());
    outside.run(&["ip", family, "route", "replace", &words[0], "via", &words[1], "src", &words[2]]).unwrap();
}

fn ingress(cluster: &Cluster, ip: IpAddr, mode: &str) {
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip, "ipMode": mode}]}}}).to_string();
    cluster.lab.kubectl(&["patch", "service", "web", "--subresource=status", "-p", &status]).unwrap();
}

/// Waits until connections are dropped, and checks one more attempt.
fn assert_dropped(from: &impl Client, to: SocketAddr) {
    wait_outcome(from, to, &Outcome::TimedOut);
    assert_eq!(attempt(from, to), Outcome::TimedOut);
}

fn check_source_ranges(family: Family) {
    let (cluster, one, _two, _listener) = two_pods(family);
    let places = Targets::of(family);
    let outside = cluster.lab.machine("outside").unwrap();
    let (balanced, far, pods): (IpAddr, IpAddr, &str) = match family {
        Family::V6 => ("2001:db8::8".parse().unwrap(), "2001:db8:113::1".parse().unwrap(), "fd01::/48"),
        Family::V4 | Family::Dual => ("198.51.100.8".parse().unwrap(), "203.0.113.1".parse().unwrap(), "10.128.0.0/14"),
    };
    let length = if far.is_ipv6() { 128 } else { 32 };
    let [first, second] = places.nodes.map(|node| node.ip());
    cluster.apply(&slice(cluster.network_of("default", "web-2").address(), "n2", true));
    let spec = |ranges: Value, policy: &str| {
        service(&json!({"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}],
            "externalIPs": [places.external], "loadBalancerSourceRanges": ranges, "externalTrafficPolicy": policy}))
    };
    cluster.apply(&spec(json!([format!("{far}/{length}")]), "Cluster"));
    ingress(&cluster, balanced, "VIP");
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    let (external, balanced) = (SocketAddr::new(places.external, 80), SocketAddr::new(balanced, 80));
    route(&outside, external.ip(), first, places.outside);
    let everything_else_works = || {
        wait_outcome(&one, own, &Outcome::Connected);
        wait_outcome(&one, external, &Outcome::Connected);
        wait_outcome(&outside, external, &Outcome::Connected);
        wait_outcome(&outside, places.nodes[0], &Outcome::Connected);
        wait_outcome(&outside, places.nodes[1], &Outcome::Connected);
    };

    // Clients in the range connect through any node; others are dropped, pods included.
    for node in [first, second] {
        route(&outside, balanced.ip(), node, far);
        wait_outcome(&outside, balanced, &Outcome::Connected);
        route(&outside, balanced.ip(), node, places.outside);
        assert_dropped(&outside, balanced);
    }
    assert_dropped(&one, balanced);
    everything_else_works();

    // Other ranges take effect.
    cluster.apply(&spec(json!([pods]), "Cluster"));
    wait_outcome(&one, balanced, &Outcome::Connected);
    assert_dropped(&outside, balanced);
    everything_else_works();

    // Also with a local gateway.
    cluster.annotate_node("n1", 1, "local");
    cluster.apply(&spec(json!([format!("{far}/{length}")]), "Cluster"));
    route(&outside, balanced.ip(), first, far);
    wait_outcome(&outside, balanced, &Outcome::Connected);
    route(&outside, balanced.ip(), first, places.outside);
    assert_dropped(&outside, balanced);

    // Also with externalTrafficPolicy Local.
    cluster.apply(&spec(json!([format!("{far}/{length}")]), "Local"));
    route(&outside, balanced.ip(), second, far);
    wait_outcome(&outside, balanced, &Outcome::Connected);
    route(&outside, balanced.ip(), second, places.outside);
    assert_dropped(&outside, balanced);

    // Without ranges all clients connect.
    cluster.apply(&spec(json!([]), "Cluster"));
    wait_outcome(&outside, balanced, &Outcome::Connected);
    wait_outcome(&one, balanced, &Outcome::Connected);
}

#[test]
fn load_balancer_source_ranges_restrict_clients() {
    check_source_ranges(Family::V4);
}

#[test]
fn load_balancer_source_ranges_restrict_clients_v6() {
    check_source_ranges(Family::V6);
}

#[test]
fn a_service_changes_its_type() {
    let (cluster, one, _two, _listener) = two_pods(Family::V4);
    let places = Targets::of(Family::V4);
    let outside = cluster.lab.machine("outside").unwrap();
    let backend = cluster.network_of("default", "web-2").address();
    let balanced: IpAddr = "198.51.100.8".parse().unwrap();
    route(&outside, balanced, places.nodes[0].ip(), places.outside);
    let balanced = SocketAddr::new(balanced, 80);
    // Endpoints before their Service, in two overlapping slices.
    let mut second = slice(backend, "n2", true);
    second["metadata"]["name"] = json!("web-2");
    cluster.apply(&slice(backend, "n2", true));
    cluster.apply(&second);
    let port = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    cluster.apply(&service(&json!({"ports": [{"port": 80, "targetPort": 8080}]})));
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    wait_outcome(&one, own, &Outcome::Connected);
    assert_ne!(attempt(&outside, places.nodes[0]), Outcome::Connected);
    // One slice is deleted: the other still has the endpoint.
    cluster.delete("endpointslice", &["web-1"]);

    cluster.apply(&service(&json!({"type": "NodePort", "ports": port})));
    wait_outcome(&outside, places.nodes[0], &Outcome::Connected);
    assert_ne!(attempt(&outside, balanced), Outcome::Connected);

    cluster.apply(&service(&json!({"type": "LoadBalancer", "ports": port})));
    ingress(&cluster, balanced.ip(), "VIP");
    wait_outcome(&outside, balanced, &Outcome::Connected);
    wait_outcome(&one, balanced, &Outcome::Connected);
    // With ipMode Proxy the address is not served inside the cluster.
    ingress(&cluster, balanced.ip(), "Proxy");
    until_not_connected(&one, balanced);
    wait_outcome(&outside, places.nodes[0], &Outcome::Connected);

    // Another proxy implementation takes the Service over, and returns it.
    cluster.lab.kubectl(&["label", "service", "web", "service.kubernetes.io/service-proxy-name=other"]).unwrap();
    until_not_connected(&one, own);
    cluster.lab.kubectl(&["label", "service", "web", "service.kubernetes.io/service-proxy-name-"]).unwrap();
    wait_outcome(&one, own, &Outcome::Connected);

    // An endpoint outside the cluster: the outside machine's web server.
    let mut far = slice(places.outside, "", true);
    far["metadata"]["name"] = json!("web-2");
    far["ports"][0]["port"] = json!(80);
    far["endpoints"][0].as_object_mut().unwrap().remove("nodeName");
    cluster.apply(&far);
    let answers = || {
        use std::io::{Read as _, Write as _};
        let mut stream = one.connect(own, crate::services::LIMIT).ok()?;
        // The former endpoint accepts the connection and never answers.
        stream.set_read_timeout(Some(std::time::Duration::from_secs(1))).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.contains("outside 10.99.0.221").then_some(())
    };
    crate::cluster::until("the outside answers under the Service's address", answers);

    // An ExternalName Service has no address, and another Service gets the old one.
    cluster.apply(&service(&json!({"type": "ExternalName", "externalName": "example.com", "ports": port})));
    until_not_connected(&one, own);
    let mut successor = service(&json!({"clusterIP": own.ip(), "ports": [{"port": 80, "targetPort": 8080}]}));
    successor["metadata"]["name"] = json!("successor");
    cluster.apply(&successor);
    wait_outcome(&one, own, &Outcome::Refused);
    let mut endpoints = slice(backend, "n2", true);
    endpoints["metadata"] =
        json!({"name": "successor", "namespace": "default", "labels": {"kubernetes.io/service-name": "successor"}});
    cluster.apply(&endpoints);
    wait_outcome(&one, own, &Outcome::Connected);
}

fn until_not_connected(from: &impl Client, to: SocketAddr) {
    crate::cluster::until(&format!("{to} is not served"), || (attempt(from, to) != Outcome::Connected).then_some(()));
}
