//! Local gateway mode: connections that a host forwards to its own endpoints with the client's address return to that
//! host.

use std::net::SocketAddr;

use lab::{Machine, Pod};
use serde_json::json;

use crate::cluster::{Cluster, ClusterSpec, pod, until};
use crate::services::{Outcome, attempt, last_client, service, slice, wait_outcome};

/// A client whose connection the host forwards.
const CLIENT: &str = "198.51.100.9";
/// The masquerade address for local endpoints of a node port.
const OWN: &str = "169.254.169.3";

/// Creates the management port and the host's routes as the node agent would.
fn management_port(host: &Machine, node: &str) {
    let run = |words: &str| host.run(&words.split(' ').collect::<Vec<_>>()).unwrap();
    run(&format!(
        "ovs-vsctl --timeout=60 add-port br-int ovn-k8s-mp0 -- set Interface ovn-k8s-mp0 type=internal \
         mac=\"0a:58:0a:80:00:02\" external_ids:iface-id=k8s-{node}"
    ));
    run("ip link set ovn-k8s-mp0 up mtu 1400");
    run("ip address add 10.128.0.2/23 dev ovn-k8s-mp0");
    run("ethtool -K ovn-k8s-mp0 tx off");
    run("ip route add 10.128.0.0/14 via 10.128.0.1");
    run(&format!("ip address add {CLIENT}/32 dev lo"));
    // Forwarded connections keep the client's address.
    run(&format!("ip route add {OWN}/32 via 10.128.0.1 dev ovn-k8s-mp0 src {CLIENT}"));
}

fn served(cluster: &Cluster) -> (Pod, std::net::TcpListener) {
    cluster.apply(&pod("default", "web", "n1"));
    let web = cluster.bind(1, "default", "web");
    let listener = web.listen(8080).unwrap();
    cluster.apply(&slice(cluster.network_of("default", "web").address(), "n1", true));
    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    cluster.apply(&service(&json!({"type": "NodePort", "ports": ports, "externalTrafficPolicy": "Local"})));
    (web, listener)
}

#[test]
fn replies_return_to_the_host_that_forwarded_the_request() {
    let cluster = ClusterSpec::new("local").nodes(2).start();
    cluster.lead("c1");
    for number in 1..=2 {
        let name = format!("n{number}");
        cluster.apply(&crate::cluster::node(&name));
        cluster.annotate_node(&name, number, "local");
    }
    let (_web, listener) = served(&cluster);
    let host = cluster.lab.node(1).unwrap();
    management_port(&host, "n1");
    let own = SocketAddr::new(OWN.parse().unwrap(), 30080);
    wait_outcome(&host, own, &Outcome::Connected);
    until("the endpoint sees the client's address", || (last_client(&listener) == CLIENT.parse().ok()).then_some(()));

    // Without local endpoints it is refused, and never forwarded to another node.
    cluster.lab.kubectl(&["delete", "endpointslice", "web-1"]).unwrap();
    until("the connection is refused", || (attempt(&host, own) != Outcome::Connected).then_some(()));
}
