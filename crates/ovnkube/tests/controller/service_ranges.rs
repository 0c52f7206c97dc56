//! Addresses of a load balancer in front of the cluster are for some clients only, by packets of both families.

use std::net::{IpAddr, SocketAddr};

use lab::{Family, Machine};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::services::{Client, End, Places, attempt, cluster_ip, ends, service, slice, two_pods};

/// What the outside sends to an address goes to a node, and comes from one of its addresses.
fn route(outside: &Machine, to: IpAddr, via: IpAddr, from: IpAddr) {
    let way = if to.is_ipv6() { "-6" } else { "-4" };
    let words = [to, via, from].map(|address| address.to_string());
    outside.run(&["ip", way, "route", "replace", &words[0], "via", &words[1], "src", &words[2]]).unwrap();
}

fn ingress(cluster: &Cluster, ip: IpAddr, mode: &str) {
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip, "ipMode": mode}]}}}).to_string();
    cluster.lab.kubectl(&["patch", "service", "web", "--subresource=status", "-p", &status]).unwrap();
}

/// Nothing comes through, whatever is tried: what has no answer is asked for once more.
fn stays_out(from: &impl Client, to: SocketAddr) {
    ends(from, to, &End::Nothing);
    assert_eq!(attempt(from, to), End::Nothing);
}

fn only_some_clients(family: Family) {
    let (cluster, one, _two, _listener) = two_pods(family);
    let places = Places::of(family);
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
        ends(&one, own, &End::Connected);
        ends(&one, external, &End::Connected);
        ends(&outside, external, &End::Connected);
        ends(&outside, places.nodes[0], &End::Connected);
        ends(&outside, places.nodes[1], &End::Connected);
    };

    // Who is named comes in, by any node; who is not stays out, pods included.
    for node in [first, second] {
        route(&outside, balanced.ip(), node, far);
        ends(&outside, balanced, &End::Connected);
        route(&outside, balanced.ip(), node, places.outside);
        stays_out(&outside, balanced);
    }
    stays_out(&one, balanced);
    everything_else_works();

    // Other ranges take effect.
    cluster.apply(&spec(json!([pods]), "Cluster"));
    ends(&one, balanced, &End::Connected);
    stays_out(&outside, balanced);
    everything_else_works();

    // Whichever way the node's pods go out.
    cluster.annotate_node("n1", 1, "local");
    cluster.apply(&spec(json!([format!("{far}/{length}")]), "Cluster"));
    route(&outside, balanced.ip(), first, far);
    ends(&outside, balanced, &End::Connected);
    route(&outside, balanced.ip(), first, places.outside);
    stays_out(&outside, balanced);

    // Where traffic stays on its node, and the client's address is kept.
    cluster.apply(&spec(json!([format!("{far}/{length}")]), "Local"));
    route(&outside, balanced.ip(), second, far);
    ends(&outside, balanced, &End::Connected);
    route(&outside, balanced.ip(), second, places.outside);
    stays_out(&outside, balanced);

    // For everybody again.
    cluster.apply(&spec(json!([]), "Cluster"));
    ends(&outside, balanced, &End::Connected);
    ends(&one, balanced, &End::Connected);
}

#[test]
fn a_load_balancers_addresses_are_for_some_clients_only() {
    only_some_clients(Family::V4);
}

#[test]
fn a_load_balancers_addresses_are_for_some_clients_only_v6() {
    only_some_clients(Family::V6);
}

#[test]
fn a_service_changes_its_nature() {
    let (cluster, one, _two, _listener) = two_pods(Family::V4);
    let places = Places::of(Family::V4);
    let outside = cluster.lab.machine("outside").unwrap();
    let backend = cluster.network_of("default", "web-2").address();
    let balanced: IpAddr = "198.51.100.8".parse().unwrap();
    route(&outside, balanced, places.nodes[0].ip(), places.outside);
    let balanced = SocketAddr::new(balanced, 80);
    // Endpoints before their Service, in two slices that overlap.
    let mut second = slice(backend, "n2", true);
    second["metadata"]["name"] = json!("web-2");
    cluster.apply(&slice(backend, "n2", true));
    cluster.apply(&second);
    let port = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    cluster.apply(&service(&json!({"ports": [{"port": 80, "targetPort": 8080}]})));
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    ends(&one, own, &End::Connected);
    assert_ne!(attempt(&outside, places.nodes[0]), End::Connected);
    // One of them goes: the other still says the same.
    cluster.delete("endpointslice", &["web-1"]);

    cluster.apply(&service(&json!({"type": "NodePort", "ports": port})));
    ends(&outside, places.nodes[0], &End::Connected);
    assert_ne!(attempt(&outside, balanced), End::Connected);

    cluster.apply(&service(&json!({"type": "LoadBalancer", "ports": port})));
    ingress(&cluster, balanced.ip(), "VIP");
    ends(&outside, balanced, &End::Connected);
    ends(&one, balanced, &End::Connected);
    // What the load balancer answers itself goes to it, also from inside.
    ingress(&cluster, balanced.ip(), "Proxy");
    until_not_connected(&one, balanced);
    ends(&outside, places.nodes[0], &End::Connected);

    // Somebody else serves it, and gives it back.
    cluster.lab.kubectl(&["label", "service", "web", "service.kubernetes.io/service-proxy-name=other"]).unwrap();
    until_not_connected(&one, own);
    cluster.lab.kubectl(&["label", "service", "web", "service.kubernetes.io/service-proxy-name-"]).unwrap();
    ends(&one, own, &End::Connected);

    // An endpoint that is no pod of ours: the outside's own web server.
    let mut far = slice(places.outside, "", true);
    far["metadata"]["name"] = json!("web-2");
    far["ports"][0]["port"] = json!(80);
    far["endpoints"][0].as_object_mut().unwrap().remove("nodeName");
    cluster.apply(&far);
    let answers = || {
        use std::io::{Read as _, Write as _};
        let mut stream = one.connect(own, crate::services::LIMIT).ok()?;
        // The former endpoint takes the connection and never answers.
        stream.set_read_timeout(Some(std::time::Duration::from_secs(1))).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.contains("outside 10.99.0.221").then_some(())
    };
    crate::cluster::until("the outside answers under the Service's address", answers);

    // A name for somebody else has no address, and another Service gets the one that it had.
    cluster.apply(&service(&json!({"type": "ExternalName", "externalName": "example.com", "ports": port})));
    until_not_connected(&one, own);
    let mut heir = service(&json!({"clusterIP": own.ip(), "ports": [{"port": 80, "targetPort": 8080}]}));
    heir["metadata"]["name"] = json!("heir");
    cluster.apply(&heir);
    ends(&one, own, &End::Refused);
    let mut endpoints = slice(backend, "n2", true);
    endpoints["metadata"] =
        json!({"name": "heir", "namespace": "default", "labels": {"kubernetes.io/service-name": "heir"}});
    cluster.apply(&endpoints);
    ends(&one, own, &End::Connected);
}

fn until_not_connected(from: &impl Client, to: SocketAddr) {
    crate::cluster::until(&format!("{to} is nobody's"), || (attempt(from, to) != End::Connected).then_some(()));
}
