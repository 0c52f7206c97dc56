//! Services become packets: from a pod through an address of a Service to another pod, and refused where nobody is.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lab::Pod;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Wish, pod, until};

const LIMIT: Duration = Duration::from_secs(2);

/// How an attempt to connect ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Connected,
    Refused,
    Nothing,
}

fn attempt(from: &Pod, to: SocketAddr) -> End {
    let tried = from.with_network(|| std::net::TcpStream::connect_timeout(&to, LIMIT)).unwrap();
    match tried {
        Ok(_) => End::Connected,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => End::Refused,
        Err(_) => End::Nothing,
    }
}

/// Waits until attempts end like this: what was written takes its time to the flows.
fn ends(from: &Pod, to: SocketAddr, end: &End) {
    until(&format!("to {to}: {end:?}"), || (attempt(from, to) == *end).then_some(()));
}

fn service(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn slice(address: IpAddr, node: &str, ready: bool) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "nodeName": node, "conditions": {"ready": ready}}]})
}

fn cluster_ip(cluster: &Cluster) -> IpAddr {
    let service = cluster.get(&["service", "-n", "default", "web"]);
    service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap()
}

#[test]
fn pods_reach_pods_by_the_addresses_of_services() {
    let cluster = Wish::new("services").nodes(2).start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
        cluster.apply(&pod("default", &format!("web-{node}"), &format!("n{node}")));
    }
    let (one, two) = (cluster.bind(1, "default", "web-1"), cluster.bind(2, "default", "web-2"));
    let listener = two.listen(8080).unwrap();
    let backend = cluster.network_of("default", "web-2").address();

    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    cluster.apply(&service(&json!({"type": "NodePort", "ports": ports})));
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    ends(&one, own, &End::Refused);

    cluster.apply(&slice(backend, "n2", true));
    ends(&one, own, &End::Connected);
    // A pod reaches itself, and its own node's port, which is a variable of its node.
    ends(&two, own, &End::Connected);
    ends(&one, "10.99.0.221:30080".parse().unwrap(), &End::Connected);

    // Each node has its own endpoints: the one without refuses.
    cluster.apply(&service(&json!({"type": "NodePort", "ports": ports, "internalTrafficPolicy": "Local"})));
    ends(&one, own, &End::Refused);
    ends(&two, own, &End::Connected);
    ends(&one, "10.99.0.221:30080".parse().unwrap(), &End::Connected);

    cluster.apply(&slice(backend, "n2", false));
    ends(&two, own, &End::Refused);
    drop(listener);
}
