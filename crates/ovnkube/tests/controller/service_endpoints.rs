//! Endpoint selection by packets: load balancing, session affinity, endpoint conditions and hints, TCP and UDP; and SCTP by
//! trace, because the lab's datapath cannot track it.
#![allow(clippy::needless_pass_by_value, reason = "JSON literals are passed by value")]

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::{Family, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, pod, until};
use crate::services::{Client, Outcome, Targets, attempt, cluster_ip, service, two_pods, wait_outcome};
use crate::tracer::Tracer;

/// The chance that all of them go to one of two endpoints is 1 in 10¹².
const MANY: usize = 40;

/// An endpoint of the pod `web-<n>` on node `n<n>`.
fn endpoint(cluster: &Cluster, number: usize, family: netmodel::Family, conditions: Value) -> Value {
    let network = cluster.network_of("default", &format!("web-{number}"));
    let own = network.addresses.iter().map(|own| own.address()).find(|own| family.matches(*own)).unwrap();
    json!({"addresses": [own], "nodeName": format!("n{number}"), "conditions": conditions})
}

pub(crate) fn ready(cluster: &Cluster, numbers: &[usize], family: netmodel::Family) -> Value {
    numbers.iter().map(|number| endpoint(cluster, *number, family, json!({"ready": true}))).collect()
}

pub(crate) fn slice_of(endpoints: Value, family: netmodel::Family) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"name": format!("web-{}", family.to_string().to_lowercase()), "namespace": "default",
            "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "tcp", "port": 8080, "protocol": "TCP"}, {"name": "udp", "port": 8080, "protocol": "UDP"},
            {"name": "sctp", "port": 8080, "protocol": "SCTP"}],
        "endpoints": endpoints})
}

/// TCP, UDP and SCTP on the same port.
pub(crate) fn mixed(more: Value) -> Value {
    let port = |name: &str, node_port: u16| json!({"name": name, "protocol": name.to_uppercase(), "port": 80, "targetPort": 8080, "nodePort": node_port});
    let mut spec = json!({"type": "NodePort", "ports": [port("tcp", 30080), port("udp", 30080), port("sctp", 30081)]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    service(&spec)
}

/// New connections per listener since the last call.
fn reached(listeners: &[&TcpListener]) -> Vec<usize> {
    let count = |listener: &&TcpListener| {
        listener.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| listener.accept().ok()).count()
    };
    listeners.iter().map(count).collect()
}

/// Connections per listener of [`MANY`] attempts; `None` if one fails, as while flows change.
fn spread(from: &impl Client, to: SocketAddr, listeners: &[&TcpListener]) -> Option<Vec<usize>> {
    reached(listeners);
    if !(0..MANY).all(|_| attempt(from, to) == Outcome::Connected) {
        return None;
    }
    // A client is connected before the server accepts.
    let mut counts = vec![0; listeners.len()];
    until("all connections are accepted", || {
        for (count, more) in counts.iter_mut().zip(reached(listeners)) {
            *count += more;
        }
        (counts.iter().sum::<usize>() >= MANY).then_some(())
    });
    Some(counts)
}

#[test]
fn load_balancing_affinity_and_endpoint_conditions() {
    check_endpoint_selection(Family::V4);
}

#[test]
fn load_balancing_affinity_and_endpoint_conditions_v6() {
    check_endpoint_selection(Family::V6);
}

fn check_endpoint_selection(family: Family) {
    let primary = family.primary();
    let (cluster, one, _two, second) = two_pods(family);
    let first = one.listen(8080).unwrap();
    cluster.apply(&pod("default", "client", "n1"));
    let client = cluster.bind(1, "default", "client");
    let listeners = [&first, &second];
    cluster.apply(&mixed(json!({})));
    cluster.apply(&slice_of(ready(&cluster, &[1, 2], primary), primary));
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    wait_outcome(&client, own, &Outcome::Connected);
    let many = || spread(&client, own, &listeners);
    let to_both = || many()?.iter().all(|count| *count > 0).then_some(());
    until("connections are load-balanced", to_both);

    // With affinity a client keeps its endpoint from the first packet on.
    let config = json!({"clientIP": {"timeoutSeconds": 3600}});
    cluster.apply(&mixed(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config})));
    let first_choice = until("a client keeps its endpoint", || many()?.iter().position(|count| *count == MANY));
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    for _ in 0..3 {
        // A failed attempt (a stalled datapath) is repeated; another endpoint is an error.
        let reached = until("all connections succeed", &many);
        assert_eq!(reached[first_choice], MANY, "the client changed its endpoint: {reached:?}");
    }

    // Terminating endpoints are a fallback; unready ones count with publishNotReadyAddresses.
    let terminating = json!({"ready": false, "serving": true, "terminating": true});
    let conditions = |one: Value, two: Value| {
        let endpoints = json!([endpoint(&cluster, 1, primary, one), endpoint(&cluster, 2, primary, two)]);
        cluster.apply(&slice_of(endpoints, primary));
    };
    let only = |which: usize| {
        until(&format!("all connections go to endpoint {which}"), || (many()?[which] == MANY).then_some(()));
    };
    cluster.apply(&mixed(json!({"sessionAffinity": "None"})));
    conditions(terminating.clone(), json!({"ready": true}));
    only(1);
    conditions(terminating, json!({"ready": false}));
    only(0);
    conditions(json!({"ready": false}), json!({"ready": false}));
    wait_outcome(&client, own, &Outcome::Refused);
    cluster.apply(&mixed(json!({"publishNotReadyAddresses": true})));
    until("both endpoints are used", to_both);

    // Topology hints.
    cluster.lab.kubectl(&["label", "node", "n1", "topology.kubernetes.io/zone=a"]).unwrap();
    cluster.lab.kubectl(&["label", "node", "n2", "topology.kubernetes.io/zone=b"]).unwrap();
    let mut near = ready(&cluster, &[1, 2], primary);
    near[0]["hints"] = json!({"forZones": [{"name": "b"}]});
    near[1]["hints"] = json!({"forZones": [{"name": "a"}]});
    cluster.apply(&slice_of(near, primary));
    only(1);

    if primary.is_ipv4() {
        sctp_is_balanced(&cluster, own.ip());
    }
}

/// By trace: the lab's datapath does not track SCTP.
fn sctp_is_balanced(cluster: &Cluster, to: IpAddr) {
    cluster.apply(&slice_of(ready(cluster, &[2], netmodel::Family::V4), netmodel::Family::V4));
    let network = cluster.network_of("default", "client");
    let IpAddr::V4(gateway) = network.gateways[0] else { panic!("{:?}", network.gateways) };
    let packet = format!(
        "inport == \"default_client\" && eth.src == {} && eth.dst == {} && ip4.src == {} && ip4.dst == {to} && ip.ttl == 64 && \
         sctp && sctp.src == 1000 && sctp.dst == 80",
        network.mac,
        netmodel::Mac::for_address(gateway.into()),
        network.address()
    );
    let mut tracer = Tracer::start(cluster, "sctp");
    until("SCTP goes to the endpoint", || {
        tracer.refresh();
        let outcome = tracer.trace("n1", &packet);
        outcome.delivered.contains("default_web-2").then_some(())
    });
}

/// Answers every datagram with a number, until dropped.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(pod: &Pod, number: u8) -> Self {
        let socket = pod.with_network(|| UdpSocket::bind("[::]:8080")).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 16];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&[number], from);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// The number of the endpoint that answers. The same socket is the same UDP flow.
fn answering_endpoint(socket: &UdpSocket, to: SocketAddr) -> Option<u8> {
    let mut buffer = [0; 16];
    // Discard late replies.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut buffer).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.send_to(b"?", to).ok()?;
    socket.recv_from(&mut buffer).ok().map(|_| buffer[0])
}

/// Waits until no flow leads to an endpoint, including the datapath's cached flows. The client must be silent meanwhile: a
/// datagram on a cached flow, after OVN flushed the conntrack entry and before Open vSwitch revalidated its cache, would
/// recreate the entry.
fn wait_no_flows_to(cluster: &Cluster, address: &str) {
    until(&format!("the database has no {address}"), || {
        let balancers = cluster.lab.nbctl(&["--bare", "--columns=vips", "list", "Load_Balancer"]).ok()?;
        let variables = cluster.lab.nbctl(&["--bare", "--columns=variables", "list", "Chassis_Template_Var"]).ok()?;
        (!balancers.contains(address) && !variables.contains(address)).then_some(())
    });
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    for node in 1..=2 {
        cluster.lab.node(node).unwrap().run(&["ovs-appctl", "revalidator/wait"]).unwrap();
    }
}

fn check_udp_flows_move(family: Family) {
    let primary = family.primary();
    let (cluster, one, two, _listener) = two_pods(family);
    cluster.apply(&pod("default", "client", "n1"));
    let client = cluster.bind(1, "default", "client");
    let outside = cluster.lab.machine("outside").unwrap();
    let _echoes = [Echo::start(&one, 1), Echo::start(&two, 2)];
    cluster.apply(&mixed(json!({})));
    cluster.apply(&slice_of(ready(&cluster, &[1, 2], primary), primary));
    let any = (primary.unspecified(), 0);
    let inner = || client.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
    let outer = || outside.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    let node = Targets::of(family).nodes[0];
    for (socket, to) in [(&inner as &dyn Fn() -> UdpSocket, own), (&outer, node)] {
        cluster.apply(&slice_of(ready(&cluster, &[1, 2], primary), primary));
        // A flow that lost its first packet during neighbour discovery never works in this datapath: both paths must have
        // carried other flows before the measured one starts.
        let mut seen = [false; 2];
        until(&format!("both endpoints answer at {to}"), || {
            seen[usize::from(answering_endpoint(&socket(), to)?) - 1] = true;
            seen.iter().all(|answered| *answered).then_some(())
        });
        let (socket, first) = until("an endpoint answers a new flow", || {
            let socket = socket();
            let first = answering_endpoint(&socket, to)?;
            Some((socket, first))
        });
        let socket = &socket;
        // A missing reply is retried; a reply of another endpoint is an error.
        let answer = || until("an endpoint answers", || answering_endpoint(socket, to));
        for _ in 0..5 {
            assert_eq!(answer(), first, "the flow changed its endpoint");
        }
        // The endpoint is removed, though it would still answer: the flow moves to the other.
        let other = 3 - first;
        cluster.apply(&slice_of(ready(&cluster, &[usize::from(other)], primary), primary));
        wait_no_flows_to(&cluster, &cluster.network_of("default", &format!("web-{first}")).address().to_string());
        until(&format!("the flow to {to} moves"), || (answering_endpoint(socket, to) == Some(other)).then_some(()));
        // It stays there when the first is added again.
        cluster.apply(&slice_of(ready(&cluster, &[1, 2], primary), primary));
        cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        assert_eq!(answer(), other);
    }
}

#[test]
fn udp_flows_move_when_their_endpoint_is_removed() {
    check_udp_flows_move(Family::V4);
}

#[test]
fn udp_flows_move_when_their_endpoint_is_removed_v6() {
    check_udp_flows_move(Family::V6);
}
