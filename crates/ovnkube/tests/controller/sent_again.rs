//! One lost packet costs a client its time, and not the connection: what is sent again gets through a load balancer of a gateway
//! router, whichever node the endpoint is on and whichever way its answers to strangers would take.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use lab::{Family, Machine, Pod};
use serde_json::json;

use crate::cluster::until;
use crate::service_endpoints::{mixed, ready, slice_of};
use crate::services::{End, Places, ends, two_pods};

/// A packet is sent again after one second, two, four.
const PATIENCE: Duration = Duration::from_secs(10);

/// The next packet to the pod's server is lost, and no other.
fn lose_one(pod: &Pod) {
    let rule = "meta l4proto { tcp, udp } th dport 8080 limit rate 1/day burst 1 packets counter drop";
    let table = format!("table inet lost {{ chain input {{ type filter hook input priority 0; {rule}; }}; }}");
    pod.run(&["nft", &table]).unwrap();
}

/// Whether it was; from now on none is.
fn one_was_lost(pod: &Pod) -> bool {
    let table = pod.run(&["nft", "list", "table", "inet", "lost"]).unwrap();
    pod.run(&["nft", "delete", "table", "inet", "lost"]).unwrap();
    table.contains("counter packets 1 ")
}

/// At one of three times: a packet that a busy datapath loses elsewhere is not what this is about, and without the rules of the
/// gateway router it succeeds at none.
fn heals(pod: &Pod, attempt: impl Fn() -> bool) -> bool {
    (0..3).any(|_| {
        lose_one(pod);
        let answered = attempt();
        one_was_lost(pod) && answered
    })
}

/// A question that is asked again until it is answered; whether it was.
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

fn goes_on(outside: &Machine, endpoint: &Pod, server: &UdpSocket, to: SocketAddr) {
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    // Neighbours are known before it counts.
    ends(outside, to, &End::Connected);
    assert!(heals(endpoint, || outside.connect(to, PATIENCE).is_ok()), "no connection to {to}");

    let client = || bind(|| outside.with_network(|| UdpSocket::bind(any)).unwrap());
    assert!((0..3).any(|_| answered(&client(), to, server)), "no answer from {to}, though nothing was lost");
    assert!(heals(endpoint, || answered(&client(), to, server)), "no answer from {to}");
}

fn what_is_sent_again_arrives(family: Family, local: bool) {
    let v6 = family == Family::V6;
    let (cluster, _one, two, _listener) = two_pods(family);
    if local {
        for number in 1..=2 {
            cluster.annotate_node(&format!("n{number}"), number, "local");
        }
        until("pods leave by their hosts", || {
            let routes = cluster.lab.nbctl(&["lr-route-list", "ovn_cluster_router"]).ok()?;
            ["10.128.0.2 ", "10.128.2.2 "].iter().all(|hop| routes.contains(hop)).then_some(())
        });
    }
    cluster.apply(&mixed(json!({})));
    cluster.apply(&slice_of(ready(&cluster, &[2], v6), v6));
    let server = bind(|| two.with_network(|| UdpSocket::bind(if v6 { "[::]:8080" } else { "0.0.0.0:8080" })).unwrap());
    let outside = cluster.lab.machine("outside").unwrap();
    for to in Places::of(family).nodes {
        goes_on(&outside, &two, &server, to);
    }
}

#[test]
fn what_is_sent_again_arrives_by_a_shared_gateway() {
    what_is_sent_again_arrives(Family::V4, false);
}

#[test]
fn what_is_sent_again_arrives_by_a_shared_gateway_v6() {
    what_is_sent_again_arrives(Family::V6, false);
}

#[test]
fn what_is_sent_again_arrives_by_a_local_gateway() {
    what_is_sent_again_arrives(Family::V4, true);
}
