//! Services by packets: from pods and from outside, and refused without endpoints.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lab::{Family, Machine, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, pod, until};

pub(crate) const LIMIT: Duration = Duration::from_secs(2);

/// The outcome of a connection attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Connected,
    Refused,
    TimedOut,
}

/// A pod or a machine.
pub(crate) trait Client {
    fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream>;
}

impl Client for Pod {
    fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        self.with_network(|| TcpStream::connect_timeout(&to, LIMIT)).unwrap()
    }
}

impl Client for Machine {
    fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        self.with_network(|| TcpStream::connect_timeout(&to, LIMIT)).unwrap()
    }
}

pub(crate) fn attempt(from: &impl Client, to: SocketAddr) -> Outcome {
    match from.connect(to) {
        Ok(_) => Outcome::Connected,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Outcome::Refused,
        Err(_) => Outcome::TimedOut,
    }
}

/// Waits until attempts have this outcome: rows become flows with a delay.
pub(crate) fn wait_outcome(from: &impl Client, to: SocketAddr, end: &Outcome) {
    until(&format!("to {to}: {end:?}"), || (attempt(from, to) == *end).then_some(()));
}

/// The address of the last client.
pub(crate) fn last_client(listener: &TcpListener) -> Option<IpAddr> {
    listener.set_nonblocking(true).unwrap();
    let mut last = None;
    while let Ok((_, client)) = listener.accept() {
        last = Some(client.ip().to_canonical());
    }
    last
}

pub(crate) fn service(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

pub(crate) fn slice(address: IpAddr, node: &str, ready: bool) -> Value {
    let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "nodeName": node, "conditions": {"ready": ready}}]})
}

pub(crate) fn cluster_ip(cluster: &Cluster) -> IpAddr {
    let service = cluster.get(&["service", "-n", "default", "web"]);
    service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap()
}

/// Two nodes with a pod on each; the second pod listens.
pub(crate) fn two_pods(family: Family) -> (Cluster, Pod, Pod, TcpListener) {
    let (pods, services) = match family {
        Family::V6 => ("fd01::/48/64", "fd96::/112"),
        Family::Dual => ("10.128.0.0/14/23,fd01::/48/64", "10.96.0.0/16,fd96::/112"),
        Family::V4 => ("10.128.0.0/14/23", "10.96.0.0/16"),
    };
    let mut spec = ClusterSpec::new("services").nodes(2);
    spec.family = family;
    let cluster = spec.arguments(&["--cluster-subnets", pods, "--k8s-service-cidrs", services]).start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
        cluster.apply(&pod("default", &format!("web-{node}"), &format!("n{node}")));
    }
    let (one, two) = (cluster.bind(1, "default", "web-1"), cluster.bind(2, "default", "web-2"));
    let listener = two.listen(8080).unwrap();
    (cluster, one, two, listener)
}

/// Addresses outside the cluster's networks.
pub(crate) struct Targets {
    pub(crate) nodes: [SocketAddr; 2],
    /// No host has it; tests route it to a node.
    pub(crate) external: IpAddr,
    pub(crate) outside: IpAddr,
}

impl Targets {
    pub(crate) fn of(family: Family) -> Self {
        let [one, two, external, outside] = match family {
            Family::V6 => ["fd99::dd", "fd99::de", "2001:db8::7", "fd99::fe"],
            Family::V4 | Family::Dual => ["10.99.0.221", "10.99.0.222", "198.51.100.7", "10.99.0.254"],
        }
        .map(|text| text.parse::<IpAddr>().unwrap());
        Self { nodes: [one, two].map(|address| SocketAddr::new(address, 30080)), external, outside }
    }
}

fn check_pods_reach_pods(family: Family) {
    let (cluster, one, two, _listener) = two_pods(family);
    let places = Targets::of(family);
    let backend = cluster.network_of("default", "web-2").address();

    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    cluster.apply(&service(&json!({"type": "NodePort", "ports": ports})));
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    wait_outcome(&one, own, &Outcome::Refused);

    cluster.apply(&slice(backend, "n2", true));
    wait_outcome(&one, own, &Outcome::Connected);
    // A pod reaches itself through the Service, and its own node's node port (a template variable of its chassis).
    wait_outcome(&two, own, &Outcome::Connected);
    wait_outcome(&one, places.nodes[0], &Outcome::Connected);

    // Only local endpoints: a node without them refuses.
    cluster.apply(&service(&json!({"type": "NodePort", "ports": ports, "internalTrafficPolicy": "Local"})));
    wait_outcome(&one, own, &Outcome::Refused);
    wait_outcome(&two, own, &Outcome::Connected);
    wait_outcome(&one, places.nodes[0], &Outcome::Connected);

    cluster.apply(&slice(backend, "n2", false));
    wait_outcome(&two, own, &Outcome::Refused);
}

#[test]
fn pods_reach_pods_through_services() {
    check_pods_reach_pods(Family::V4);
}

#[test]
fn pods_reach_pods_through_services_v6() {
    check_pods_reach_pods(Family::V6);
}

fn check_outside_reaches_pods(family: Family) {
    let (cluster, _one, _two, listener) = two_pods(family);
    let places = Targets::of(family);
    let outside = cluster.lab.machine("outside").unwrap();
    let backend = cluster.network_of("default", "web-2").address();
    cluster.apply(&slice(backend, "n2", true));
    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    let spec = |policy: &str| {
        service(&json!({"type": "NodePort", "ports": ports, "externalIPs": [places.external],
            "externalTrafficPolicy": policy}))
    };
    // Through any node; the endpoint sees the node's address.
    cluster.apply(&spec("Cluster"));
    for node in places.nodes {
        wait_outcome(&outside, node, &Outcome::Connected);
    }
    assert_ne!(last_client(&listener), Some(places.outside));

    // Only through the endpoint's own node, and the endpoint sees the client's address.
    cluster.apply(&spec("Local"));
    until("the other node has no endpoint", || {
        (attempt(&outside, places.nodes[0]) != Outcome::Connected).then_some(())
    });
    until("the endpoint sees the client's address", || {
        let connected = attempt(&outside, places.nodes[1]) == Outcome::Connected;
        (connected && last_client(&listener) == Some(places.outside)).then_some(())
    });

    // An external IP is dropped by a node without endpoints, as kube-proxy does, and served by the other.
    let external = SocketAddr::new(places.external, 80);
    for (node, outcome) in [(0, Outcome::TimedOut), (1, Outcome::Connected)] {
        let (target, via) = (places.external.to_string(), places.nodes[node].ip().to_string());
        let family = if places.external.is_ipv6() { "-6" } else { "-4" };
        outside.run(&["ip", family, "route", "replace", &target, "via", &via]).unwrap();
        wait_outcome(&outside, external, &outcome);
    }
    until("the endpoint sees the client's address", || (last_client(&listener) == Some(places.outside)).then_some(()));
}

#[test]
fn outside_clients_reach_pods_by_node_ports_and_external_ips() {
    check_outside_reaches_pods(Family::V4);
}

#[test]
fn outside_clients_reach_pods_by_node_ports_and_external_ips_v6() {
    check_outside_reaches_pods(Family::V6);
}

/// ovn-controller 25.03 fails an assertion if its chassis' template variables are removed and recreated.
#[test]
fn chassis_template_vars_are_removed_after_their_chassis() {
    let cluster = ClusterSpec::new("variables").nodes(2).start();
    cluster.lead("c1");
    let chassis = || cluster.column("Chassis_Template_Var", "chassis");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    until("each chassis has variables", || (chassis().len() == 2).then_some(()));
    cluster.lab.terminate("n2-ovn-controller", crate::cluster::TIMEOUT).unwrap();
    cluster.delete("node", &["n1", "n2"]);
    until("the variables of the stopped chassis are removed", || (chassis() == ["n1"]).then_some(()));
    // The other chassis runs: its node can be recreated.
    cluster.add_node(1);
    cluster.apply(&pod("default", "web-1", "n1"));
    cluster.bind(1, "default", "web-1");
    assert_eq!(chassis(), ["n1"]);
}
