//! A retransmission after one lost packet passes the load balancer of a gateway router, whichever node the endpoint is on
//! and whichever gateway mode its node has.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use lab::{Family, Machine, Pod};
use serde_json::json;

use crate::cluster::until;
use crate::service_endpoints::{mixed, ready, slice_of};
use crate::services::{Outcome, Targets, two_pods, wait_outcome};

/// Covers the TCP retransmissions after 1, 2 and 4 s.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Drops the next packet to the pod's server, and no other.
fn lose_one(pod: &Pod) {
    let rule = "meta l4proto { tcp, udp } th dport 8080 limit rate 1/day burst 1 packets counter drop";
    let table = format!("table inet lost {{ chain input {{ type filter hook input priority 0; {rule}; }}; }}");
    pod.run(&["nft", &table]).unwrap();
}

/// Whether it was dropped; removes the rule.
fn one_was_lost(pod: &Pod) -> bool {
    let table = pod.run(&["nft", "list", "table", "inet", "lost"]).unwrap();
    pod.run(&["nft", "delete", "table", "inet", "lost"]).unwrap();
    table.contains("counter packets 1 ")
}

/// Succeeds if one of three attempts does: a busy datapath may lose other packets. Without the gateway router's rules none
/// succeeds.
fn survives_a_loss(pod: &Pod, attempt: impl Fn() -> bool) -> bool {
    (0..3).any(|_| {
        lose_one(pod);
        let answered = attempt();
        one_was_lost(pod) && answered
    })
}

/// Whether a datagram that the client repeats is answered.
fn answered(client: &UdpSocket, to: SocketAddr, server: &UdpSocket) -> bool {
    let mut buffer = [0; 16];
    (0..10).any(|_| {
        client.send_to(b"?", to).unwrap();
        let asked = server.recv_from(&mut buffer);
        asked.is_ok_and(|(_, from)| server.send_to(b"!", from).is_ok()) && client.recv_from(&mut buffer).is_ok()
    })
}

fn bind(work: impl FnOnce() -> std::io::Result<UdpSocket>) -> UdpSocket {
    let socket = work().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

fn check_target(outside: &Machine, endpoint: &Pod, server: &UdpSocket, to: SocketAddr) {
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    // Resolve neighbours first.
    wait_outcome(outside, to, &Outcome::Connected);
    assert!(survives_a_loss(endpoint, || outside.connect(to, TIMEOUT).is_ok()), "no connection to {to}");

    let client = || bind(|| outside.with_network(|| UdpSocket::bind(any)).unwrap());
    assert!((0..3).any(|_| answered(&client(), to, server)), "no reply from {to}, though nothing was dropped");
    assert!(survives_a_loss(endpoint, || answered(&client(), to, server)), "no reply from {to} after a loss");
}

fn check_retransmission(family: Family, local: bool) {
    let primary = family.primary();
    let (cluster, _one, two, _listener) = two_pods(family);
    if local {
        for number in 1..=2 {
            cluster.annotate_node(&format!("n{number}"), number, "local");
        }
        until("pods' egress goes through their hosts", || {
            let routes = cluster.lab.nbctl(&["lr-route-list", "ovn_cluster_router"]).ok()?;
            ["10.128.0.2 ", "10.128.2.2 "].iter().all(|hop| routes.contains(hop)).then_some(())
        });
    }
    cluster.apply(&mixed(json!({})));
    cluster.apply(&slice_of(ready(&cluster, &[2], primary), primary));
    let server = bind(|| two.with_network(|| UdpSocket::bind((primary.unspecified(), 8080))).unwrap());
    let outside = cluster.lab.machine("outside").unwrap();
    for to in Targets::of(family).nodes {
        check_target(&outside, &two, &server, to);
    }
}

#[test]
fn retransmissions_arrive_through_a_shared_gateway() {
    check_retransmission(Family::V4, false);
}

#[test]
fn retransmissions_arrive_through_a_shared_gateway_v6() {
    check_retransmission(Family::V6, false);
}

#[test]
fn retransmissions_arrive_through_a_local_gateway() {
    check_retransmission(Family::V4, true);
}
