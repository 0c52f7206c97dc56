//! Connectivity through the gateway in both modes and all families, and which source addresses are kept.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use lab::{Family, Machine, Pod};
use netmodel::Family::V4;
use serde_json::json;

use crate::site::{Client, Site, underlay, until};
use crate::unserved;

const OUTSIDE: u8 = 254;

fn host(node: u8, family: netmodel::Family) -> IpAddr {
    underlay(10 + node, family)
}

/// SNAT maps a pod's source port to its own range: with the port of a host's server, the pod would receive packets for
/// that server.
fn check_snat_port_range(pod: &Pod, node: &Machine, outside: &Machine, family: netmodel::Family) {
    const SERVER: u16 = 10250;
    let any = family.unspecified();
    let bind = |port: u16| {
        let socket = UdpSocket::bind((any, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    };
    let server = node.with_network(|| bind(SERVER)).unwrap();
    let client = outside.with_network(|| bind(0)).unwrap();
    let of_pod = pod.with_network(|| bind(SERVER)).unwrap();
    let target = SocketAddr::new(underlay(OUTSIDE, family), client.local_addr().unwrap().port());
    let mut buffer = [0; 16];
    let seen = until("the outside receives the pod's datagram", || {
        of_pod.send_to(b"pod", target).ok()?;
        client.recv_from(&mut buffer).ok()
    });
    assert_eq!(seen.1.ip().to_canonical(), host(1, family));
    assert!((32768..=60999).contains(&seen.1.port()), "{seen:?}");
    let host = SocketAddr::new(host(1, family), SERVER);
    until("the host's server receives the outside's datagram", || {
        client.send_to(b"outside", host).ok()?;
        server.recv_from(&mut buffer).ok().filter(|_| &buffer[..7] == b"outside")
    });
}

/// Pods leave with their node's address, which other nodes accept for tunnels: their packets to the tunnel port are dropped.
fn check_no_forged_tunnels(pod: &Pod, outside: &Machine, family: netmodel::Family) {
    const TUNNELS: u16 = 6081;
    let any = family.unspecified();
    let bind = |port: u16| {
        let socket = UdpSocket::bind((any, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    };
    let (tunnels, other) = outside.with_network(|| (bind(TUNNELS), bind(TUNNELS + 1))).unwrap();
    let of_pod = pod.with_network(|| bind(0)).unwrap();
    let target = |port: u16| SocketAddr::new(underlay(OUTSIDE, family), port);
    let mut buffer = [0; 16];
    until("the outside receives the pod's datagram at another port", || {
        of_pod.send_to(b"tunnel", target(TUNNELS)).ok()?;
        of_pod.send_to(b"other", target(TUNNELS + 1)).ok()?;
        other.recv_from(&mut buffer).ok()
    });
    let received = tunnels.recv_from(&mut buffer);
    assert!(received.is_err(), "a pod's tunnel packet left its node: {received:?}");
}

/// An external IP that tests route to a node.
fn external(number: u8, family: netmodel::Family) -> IpAddr {
    match family {
        netmodel::Family::V4 => IpAddr::from([192, 0, 2, number]),
        netmodel::Family::V6 => format!("2001:db8:2::{number}").parse().unwrap(),
    }
}

#[allow(clippy::too_many_lines, reason = "one cluster serves all of them")]
fn check_reachability(purpose: &str, family: Family, mode: &'static str) {
    let site = Site::start(purpose, family, mode);
    let families = site.families();
    let (n1, n2, outside) =
        (site.lab.node(1).unwrap(), site.lab.node(2).unwrap(), site.lab.machine("outside").unwrap());
    let published = json!({"ports": [{"containerPort": 8080, "hostPort": 7070}]});
    let (one, one_addresses) = site.pod(1, "web-1", &published);
    let (two, two_addresses) = site.pod(2, "web-2", &json!({}));
    site.serve_on(&n1, 9090);
    site.serve_on(&n2, 9090);
    site.serve_on(&outside, 9090);
    let hosts = |port: u16| -> Vec<_> { families.iter().map(|family| (host(1, *family), 1, port)).collect() };
    let pods: Vec<_> = one_addresses
        .iter()
        .map(|address| (*address, 1, 8080))
        .chain(two_addresses.iter().map(|address| (*address, 2, 8080)))
        .collect();
    let of_one: Vec<_> = one_addresses.iter().map(|address| (*address, 1, 8080)).collect();
    let external_of =
        |number: u8| -> Vec<String> { families.iter().map(|family| external(number, *family).to_string()).collect() };
    let web = site.service(
        "web",
        json!({"type": "NodePort", "externalIPs": external_of(8), "ports": [{"port": 80, "nodePort": 30080}]}),
        &pods,
    );
    let near: Vec<String> = [external_of(9), external_of(10)].concat();
    site.service(
        "near",
        json!({"type": "NodePort", "externalTrafficPolicy": "Local", "externalIPs": near,
            "ports": [{"port": 80, "nodePort": 30081}]}),
        &of_one,
    );
    let on_host =
        site.service("host", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30082}]}), &hosts(9090));
    site.service(
        "near-host",
        json!({"type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{"port": 80, "nodePort": 30083}]}),
        &hosts(9090),
    );
    let own: Vec<IpAddr> = families.iter().flat_map(|family| [host(1, *family), host(2, *family)]).collect();
    let api_server = unserved::create_conflicting_services(&site, &web, &own);
    for node in [&n1, &n2] {
        site.serve_on(node, unserved::KUBELET);
    }
    unserved::watch_leaks(&outside);
    site.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    let (from_outside, from_n1, from_n2) = (Client::Machine(&outside), Client::Machine(&n1), Client::Machine(&n2));
    let (from_one, from_two) = (Client::Pod(&one), Client::Pod(&two));
    let any_of = |answers: &[&str], client: Client<'_>, target: SocketAddr| {
        let answer = client.reaches(target);
        assert!(answers.contains(&answer.name.as_str()), "{target}: {answer:?}");
        answer.client
    };
    for family in families.iter().copied() {
        let of = |addresses: &[IpAddr]| *addresses.iter().find(|address| family.matches(**address)).unwrap();
        let at = |address: IpAddr, port: u16| SocketAddr::new(address, port);
        for (number, node) in [(8, 1), (9, 1), (10, 2)] {
            let (target, hop) = (external(number, family).to_string(), host(node, family).to_string());
            outside.run(&["ip", "route", "add", &target, "via", &hop]).unwrap();
        }
        // Pods leave with their node's address in both modes, also to other hosts.
        assert_eq!(any_of(&["outside"], from_one, at(underlay(OUTSIDE, family), 9090)), host(1, family));
        assert_eq!(any_of(&["outside"], from_two, at(underlay(OUTSIDE, family), 9090)), host(2, family));
        assert_eq!(any_of(&["n2"], from_one, at(host(2, family), 9090)), host(1, family));
        check_no_forged_tunnels(&one, &outside, family);
        // Between a pod and its own host addresses are kept.
        assert_eq!(any_of(&["n1"], from_one, at(host(1, family), 9090)), of(&one_addresses));
        any_of(&["web-1"], from_n1, at(of(&one_addresses), 8080));
        any_of(&["web-2"], from_n1, at(of(&two_addresses), 8080));
        any_of(&["web-2"], from_one, at(of(&two_addresses), 8080));
        // Hosts reach each other and the outside.
        assert_eq!(any_of(&["outside"], from_n1, at(underlay(OUTSIDE, family), 9090)), host(1, family));
        assert_eq!(any_of(&["n1"], from_outside, at(host(1, family), 9090)), underlay(OUTSIDE, family));
        // Services: from outside through every node and an external IP, from hosts, from pods.
        let both = ["web-1", "web-2"];
        for target in [at(host(1, family), 30080), at(host(2, family), 30080), at(external(8, family), 80)] {
            any_of(&both, from_outside, target);
            any_of(&both, from_n1, target);
            any_of(&both, from_n2, target);
            any_of(&both, from_one, target);
        }
        any_of(&both, from_n1, at(of(&web), 80));
        any_of(&both, from_one, at(of(&web), 80));
        // With externalTrafficPolicy Local clients keep their address and get local endpoints only.
        for target in [at(host(1, family), 30081), at(external(9, family), 80)] {
            assert_eq!(any_of(&["web-1"], from_outside, target), underlay(OUTSIDE, family));
        }
        for target in [at(host(2, family), 30081), at(external(10, family), 80)] {
            // Dropped, as kube-proxy does.
            let error = from_outside.ask(target).expect_err("n2 has no endpoint");
            assert!(error.contains("timed out"), "{target}: {error}");
        }
        any_of(&["web-1"], from_n1, at(host(1, family), 30081));
        any_of(&["web-1"], from_n2, at(host(2, family), 30081));
        // Host-network endpoints: from outside through both nodes, from both hosts, from pods.
        for target in [at(host(1, family), 30082), at(host(2, family), 30082), at(of(&on_host), 80)] {
            if target.ip() != of(&on_host) {
                any_of(&["n1"], from_outside, target);
            }
            for client in [from_n1, from_n2, from_one, from_two] {
                any_of(&["n1"], client, target);
            }
        }
        assert_eq!(any_of(&["n1"], from_outside, at(host(1, family), 30083)), underlay(OUTSIDE, family));
        check_snat_port_range(&one, &n1, &outside, family);
        // A host port.
        assert_eq!(any_of(&["web-1"], from_outside, at(host(1, family), 7070)), underlay(OUTSIDE, family));
        any_of(&["web-1"], from_n1, at(host(1, family), 7070));
        any_of(&["web-1"], from_n2, at(host(1, family), 7070));
        assert!(from_outside.ask(at(host(2, family), 7070)).is_err(), "n2 has no such port");
        // No Service takes over a host's own port.
        for client in [from_n1, from_n2, from_outside, from_two] {
            any_of(&["n1"], client, at(host(1, family), unserved::KUBELET));
        }
        for target in [at(unserved::unallocated(family), 80), at(of(&web), 81)] {
            unserved::assert_refused("a pod", from_one, target);
            unserved::assert_refused("a host", from_n1, target);
        }
    }
    for node in [&n1, &n2] {
        unserved::assert_not_redirected(node, &[&api_server[..], &web[..], &own[..]].concat());
    }
    unserved::assert_no_leaks(&outside);
    unserved::assert_no_template_warnings(&site);
    unserved::assert_refused_without_router(&site, &n1, &outside);
}

#[test]
fn shared_gateway_v4() {
    check_reachability("gw-shared", Family::V4, "shared");
}

#[test]
fn local_gateway_v4() {
    check_reachability("gw-local", Family::V4, "local");
}

#[test]
fn shared_gateway_v6() {
    check_reachability("gw-shared-six", Family::V6, "shared");
}

#[test]
fn local_gateway_v6() {
    check_reachability("gw-local-six", Family::V6, "local");
}

#[test]
fn shared_gateway_dual_stack() {
    check_reachability("gw-shared-dual", Family::Dual, "shared");
}

#[test]
fn local_gateway_dual_stack() {
    check_reachability("gw-local-dual", Family::Dual, "local");
}

/// In local mode the packets never reach OVN.
fn check_source_ranges(purpose: &str, mode: &'static str) {
    let site = Site::start(purpose, Family::V4, mode);
    let outside = site.lab.machine("outside").unwrap();
    let (_, addresses) = site.pod(1, "web-1", &json!({}));
    let spec = |ranges: &str| {
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": [ranges],
            "ports": [{"port": 80, "nodePort": 30081}]})
    };
    let endpoints = [(addresses[0], 1, 8080)];
    site.service("near", spec("10.99.0.0/24"), &endpoints);
    let address = external(9, V4);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address.to_string()}]}}}).to_string();
    site.lab.kubectl(&["patch", "service", "near", "--subresource=status", "--type=merge", "-p", &status]).unwrap();
    let hop = host(1, V4).to_string();
    outside.run(&["ip", "route", "add", &address.to_string(), "via", &hop]).unwrap();
    let target = SocketAddr::new(address, 80);
    let client = Client::Machine(&outside);
    assert_eq!(client.reaches(target).client, underlay(OUTSIDE, V4));
    site.service("near", spec("198.51.100.0/24"), &endpoints);
    // Several attempts: one may fail for other reasons, such as a flow change.
    until("a client outside the ranges is denied", || (0..4).all(|_| client.ask(target).is_err()).then_some(()));
    // Ranges do not apply to the node port.
    client.reaches(SocketAddr::new(host(1, V4), 30081));
    site.service("near", spec("10.99.0.254/32"), &endpoints);
    assert_eq!(client.reaches(target).name, "web-1");
}

#[test]
fn source_ranges_are_enforced() {
    check_source_ranges("gw-ranges", "shared");
}

#[test]
fn source_ranges_are_enforced_local() {
    check_source_ranges("gw-ranges-local", "local");
}
