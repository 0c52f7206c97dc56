//! Services become packets: from a pod through an address of a Service to another pod, and refused where nobody is.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lab::{Family, Machine, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Wish, pod, until};

pub(crate) const LIMIT: Duration = Duration::from_secs(2);

/// How an attempt to connect ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Connected,
    Refused,
    Nothing,
}

/// Whoever connects: a pod, or the outside.
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

pub(crate) fn attempt(from: &impl Client, to: SocketAddr) -> End {
    match from.connect(to) {
        Ok(_) => End::Connected,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => End::Refused,
        Err(_) => End::Nothing,
    }
}

/// Waits until attempts end like this: what was written takes its time to the flows.
pub(crate) fn ends(from: &impl Client, to: SocketAddr, end: &End) {
    until(&format!("to {to}: {end:?}"), || (attempt(from, to) == *end).then_some(()));
}

/// Who connected last.
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

/// A cluster of two nodes with a pod on each; the second one listens.
pub(crate) fn two_pods(family: Family) -> (Cluster, Pod, Pod, TcpListener) {
    let (pods, services) = match family {
        Family::V6 => ("fd01::/48/64", "fd96::/112"),
        Family::Dual => ("10.128.0.0/14/23,fd01::/48/64", "10.96.0.0/16,fd96::/112"),
        Family::V4 => ("10.128.0.0/14/23", "10.96.0.0/16"),
    };
    let mut wish = Wish::new("services").nodes(2);
    wish.family = family;
    let cluster = wish.arguments(&["--cluster-subnets", pods, "--k8s-service-cidrs", services]).start();
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

/// Addresses that a test speaks of.
pub(crate) struct Places {
    pub(crate) nodes: [SocketAddr; 2],
    /// Nobody has it: whoever is told to routes it to a node.
    pub(crate) external: IpAddr,
    pub(crate) outside: IpAddr,
}

impl Places {
    pub(crate) fn of(family: Family) -> Self {
        let [one, two, external, outside] = match family {
            Family::V6 => ["fd99::dd", "fd99::de", "2001:db8::7", "fd99::fe"],
            Family::V4 | Family::Dual => ["10.99.0.221", "10.99.0.222", "198.51.100.7", "10.99.0.254"],
        }
        .map(|text| text.parse::<IpAddr>().unwrap());
        Self { nodes: [one, two].map(|address| SocketAddr::new(address, 30080)), external, outside }
    }
}

fn pods_reach_pods(family: Family) {
    let (cluster, one, two, _listener) = two_pods(family);
    let places = Places::of(family);
    let backend = cluster.network_of("default", "web-2").address();

    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    cluster.apply(&service(&json!({"type": "NodePort", "ports": ports})));
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    ends(&one, own, &End::Refused);

    cluster.apply(&slice(backend, "n2", true));
    ends(&one, own, &End::Connected);
    // A pod reaches itself, and its own node's port, which is a variable of its node.
    ends(&two, own, &End::Connected);
    ends(&one, places.nodes[0], &End::Connected);

    // Each node has its own endpoints: the one without refuses.
    cluster.apply(&service(&json!({"type": "NodePort", "ports": ports, "internalTrafficPolicy": "Local"})));
    ends(&one, own, &End::Refused);
    ends(&two, own, &End::Connected);
    ends(&one, places.nodes[0], &End::Connected);

    cluster.apply(&slice(backend, "n2", false));
    ends(&two, own, &End::Refused);
}

#[test]
fn pods_reach_pods_by_the_addresses_of_services() {
    pods_reach_pods(Family::V4);
}

#[test]
fn pods_reach_pods_by_the_addresses_of_services_v6() {
    pods_reach_pods(Family::V6);
}

fn the_outside_reaches_pods(family: Family) {
    let (cluster, _one, _two, listener) = two_pods(family);
    let places = Places::of(family);
    let outside = cluster.lab.machine("outside").unwrap();
    let backend = cluster.network_of("default", "web-2").address();
    cluster.apply(&slice(backend, "n2", true));
    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    let spec = |policy: &str| {
        service(&json!({"type": "NodePort", "ports": ports, "externalIPs": [places.external],
            "externalTrafficPolicy": policy}))
    };
    // By any node: the endpoint answers to the node that passed it on.
    cluster.apply(&spec("Cluster"));
    for node in places.nodes {
        ends(&outside, node, &End::Connected);
    }
    assert_ne!(last_client(&listener), Some(places.outside));

    // By the endpoint's own node alone, and the endpoint sees who it is.
    cluster.apply(&spec("Local"));
    until("the other node has no endpoint", || (attempt(&outside, places.nodes[0]) != End::Connected).then_some(()));
    until("the endpoint sees who it is", || {
        let connected = attempt(&outside, places.nodes[1]) == End::Connected;
        (connected && last_client(&listener) == Some(places.outside)).then_some(())
    });

    // An address that is nobody's own is dropped by a node without endpoints, as kube-proxy does, and served by the other.
    let external = SocketAddr::new(places.external, 80);
    for (node, end) in [(0, End::Nothing), (1, End::Connected)] {
        let (target, via) = (places.external.to_string(), places.nodes[node].ip().to_string());
        let way = if places.external.is_ipv6() { "-6" } else { "-4" };
        outside.run(&["ip", way, "route", "replace", &target, "via", &via]).unwrap();
        ends(&outside, external, &end);
    }
    until("the endpoint sees who it is", || (last_client(&listener) == Some(places.outside)).then_some(()));
}

#[test]
fn the_outside_reaches_pods_by_node_ports_and_external_addresses() {
    the_outside_reaches_pods(Family::V4);
}

#[test]
fn the_outside_reaches_pods_by_node_ports_and_external_addresses_v6() {
    the_outside_reaches_pods(Family::V6);
}

/// ovn-controller 25.03 fails an assertion when the variables of its chassis go and come back: they go when it is gone.
#[test]
fn variables_go_with_their_chassis_and_not_before() {
    let cluster = Wish::new("variables").nodes(2).start();
    cluster.lead("c1");
    let chassis = || cluster.column("Chassis_Template_Var", "chassis");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    until("each chassis has variables", || (chassis().len() == 2).then_some(()));
    cluster.lab.terminate("n2-ovn-controller", crate::cluster::PATIENCE).unwrap();
    cluster.delete("node", &["n1", "n2"]);
    until("the variables of the chassis that is gone go", || (chassis() == ["n1"]).then_some(()));
    // The other one lives: its node may come back, and it does.
    cluster.add_node(1);
    cluster.apply(&pod("default", "web-1", "n1"));
    cluster.bind(1, "default", "web-1");
    assert_eq!(chassis(), ["n1"]);
}
