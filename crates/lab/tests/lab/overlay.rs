//! Packets over Geneve, load balancers, egress and NodePorts, with every address family of the underlay.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};

use lab::{Databases, Family, Lab, LabSpec, Machine, Ovn};

use crate::network::{self, NodeNetwork, PORT, TIMEOUT, answer, ask};

fn start(purpose: &str, family: Family, ovn: Ovn) -> (Lab, Vec<NodeNetwork>) {
    let lab = Lab::start(LabSpec::for_test(purpose).unwrap().nodes(2).family(family).ovn(ovn)).unwrap();
    let nodes = network::build(&lab, 2);
    (lab, nodes)
}

fn standalone() -> Ovn {
    Ovn { databases: Databases::Standalone, ..Ovn::default() }
}

/// Packets that a node has sent through its tunnels.
fn tunnelled(node: &Machine) -> u64 {
    let text = node.run(&["ovs-vsctl", "--bare", "--columns=statistics", "find", "interface", "type=geneve"]).unwrap();
    text.split_whitespace()
        .filter_map(|word| word.trim_matches([',', '{', '}']).strip_prefix("tx_packets=")?.parse::<u64>().ok())
        .sum()
}

fn ping(nodes: &[NodeNetwork]) {
    for address in &nodes[1].pod_addresses {
        // The first may be lost while the tunnel's neighbour resolves: three answers within the deadline.
        nodes[0].pod.run(&["ping", "-c", "3", "-i", "0.2", "-w", "30", &address.to_string()]).unwrap();
        assert!(ask(&nodes[0].pod, *address, PORT).starts_with("pod2 "));
    }
}

fn pods_ping_over_geneve(purpose: &str, family: Family, ovn: Ovn) {
    let (lab, nodes) = start(purpose, family, ovn);
    let machine = lab.node(1).unwrap();
    // By default ovs-vswitchd updates statistics only every five seconds.
    machine.run(&["ovs-vsctl", "set", "Open_vSwitch", ".", "other_config:stats-update-interval=100"]).unwrap();
    ping(&nodes);
    let deadline = std::time::Instant::now() + TIMEOUT;
    while tunnelled(&machine) == 0 {
        assert!(std::time::Instant::now() < deadline, "nothing went through the tunnel");
    }
}

#[test]
fn pods_ping_over_geneve_on_a_v4_underlay() {
    pods_ping_over_geneve("geneve4", Family::V4, standalone());
}

#[test]
fn pods_ping_over_geneve_on_a_v6_underlay() {
    pods_ping_over_geneve("geneve6", Family::V6, standalone());
}

#[test]
fn pods_ping_over_geneve_with_raft_and_mutual_tls() {
    pods_ping_over_geneve("geneve-tls", Family::Dual, Ovn { tls: true, northds: 2, ..Ovn::default() });
}

#[test]
fn a_load_balancer_uses_every_backend_including_the_client() {
    let (lab, nodes) = start("balancer", Family::V4, standalone());
    let vips = ["10.96.0.10", "fd96::10"];
    for (index, vip) in vips.iter().enumerate() {
        let text = |address: IpAddr, port: u16| SocketAddr::new(address, port).to_string();
        let backends: Vec<String> = nodes.iter().map(|node| text(node.pod_addresses[index], PORT)).collect();
        let name = format!("vip{index}");
        lab.nbctl(&["lb-add", &name, &text(vip.parse().unwrap(), 80), &backends.join(","), "tcp"]).unwrap();
        for switch in ["sw1", "sw2"] {
            lab.nbctl(&["ls-lb-add", switch, &name]).unwrap();
        }
        lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        // Each connection picks a backend at random: missing one in forty means a broken load balancer, not bad luck.
        for _ in 0..40 {
            seen.insert(ask(&nodes[0].pod, vip.parse().unwrap(), 80).split(' ').next().unwrap().to_owned());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["pod1", "pod2"], "{vip}");
    }
}

#[test]
fn a_pod_reaches_the_outside_and_the_outside_a_node_port() {
    let (lab, nodes) = start("outside", Family::Dual, standalone());
    for (index, far) in lab::EXTERNAL_ADDRESSES.iter().enumerate() {
        let own = nodes[0].gateway_addresses[index];
        assert_eq!(fetch(&nodes[0].pod, far.parse().unwrap()), format!("outside {own}"));
    }
    let outside = lab.machine("outside").unwrap();
    for index in 0..2 {
        let vip = SocketAddr::new(nodes[0].gateway_addresses[index], 30080);
        let backend = SocketAddr::new(nodes[1].pod_addresses[index], PORT);
        let name = format!("np{index}");
        lab.nbctl(&["lb-add", &name, &vip.to_string(), &backend.to_string(), "tcp"]).unwrap();
        lab.nbctl(&["--wait=hv", "lr-lb-add", "gr1", &name]).unwrap();
        let mut stream = outside.connect(vip, TIMEOUT).unwrap();
        let mut text = String::new();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("pod2 "), "{vip}: {text}");
    }
}

/// An HTTP request to the web server of machine `outside`.
fn fetch(pod: &lab::Pod, address: IpAddr) -> String {
    let mut stream = pod.connect(SocketAddr::new(address, lab::WEB_PORT), TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.trim().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn parallel_labs_use_the_same_addresses() {
    let one = Lab::start(LabSpec::for_test("side-a").unwrap().nodes(1)).unwrap();
    let two = Lab::start(LabSpec::for_test("side-b").unwrap().nodes(1)).unwrap();
    let addresses = |lab: &Lab| lab.record().machine("n1").unwrap().addresses.clone();
    assert_ne!(one.name(), two.name());
    assert_eq!(addresses(&one), addresses(&two));
    // Each has its own outside: a listener in one lab is not in the other.
    let here = SocketAddr::new("10.99.0.254".parse().unwrap(), 9999);
    answer(
        one.machine("outside").unwrap().with_network(|| std::net::TcpListener::bind(here)).unwrap().unwrap(),
        "one".into(),
    );
    one.node(1).unwrap().connect(here, TIMEOUT).unwrap();
    assert!(two.node(1).unwrap().connect(here, TIMEOUT).is_err());
}
