//! Which endpoint a client gets, by packets: spread or staying, by TCP and UDP, ready, terminating or near; and SCTP, which the
//! lab's datapath cannot track, by trace.
// What is written down on the spot is passed as it is.
#![allow(clippy::needless_pass_by_value)]

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::{Family, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, pod, until};
use crate::services::{Client, End, Places, attempt, cluster_ip, ends, service, two_pods};
use crate::tracer::Tracer;

/// So many connections by chance all go to one of two endpoints once in a million million times.
const MANY: usize = 40;

/// An endpoint of the pod `web-<n>` on node `n<n>`.
fn endpoint(cluster: &Cluster, number: usize, v6: bool, conditions: Value) -> Value {
    let network = cluster.network_of("default", &format!("web-{number}"));
    let own = network.addresses.iter().map(|own| own.address()).find(|own| own.is_ipv6() == v6).unwrap();
    json!({"addresses": [own], "nodeName": format!("n{number}"), "conditions": conditions})
}

pub(crate) fn ready(cluster: &Cluster, numbers: &[usize], v6: bool) -> Value {
    numbers.iter().map(|number| endpoint(cluster, *number, v6, json!({"ready": true}))).collect()
}

pub(crate) fn slice_of(endpoints: Value, v6: bool) -> Value {
    let family = if v6 { "IPv6" } else { "IPv4" };
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"name": format!("web-{}", family.to_lowercase()), "namespace": "default",
            "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "tcp", "port": 8080, "protocol": "TCP"}, {"name": "udp", "port": 8080, "protocol": "UDP"},
            {"name": "sctp", "port": 8080, "protocol": "SCTP"}],
        "endpoints": endpoints})
}

/// TCP, UDP and SCTP by one number.
pub(crate) fn mixed(more: Value) -> Value {
    let port = |name: &str, node_port: u16| json!({"name": name, "protocol": name.to_uppercase(), "port": 80, "targetPort": 8080, "nodePort": node_port});
    let mut spec = json!({"type": "NodePort", "ports": [port("tcp", 30080), port("udp", 30080), port("sctp", 30081)]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    service(&spec)
}

/// How many connections each of them got since this was asked last.
fn reached(listeners: &[&TcpListener]) -> Vec<usize> {
    let count = |listener: &&TcpListener| {
        listener.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| listener.accept().ok()).count()
    };
    listeners.iter().map(count).collect()
}

/// Where many connections end; nothing if one of them fails, as while flows change.
fn spread(from: &impl Client, to: SocketAddr, listeners: &[&TcpListener]) -> Option<Vec<usize>> {
    reached(listeners);
    if !(0..MANY).all(|_| attempt(from, to) == End::Connected) {
        return None;
    }
    // A client is connected a moment before the other end knows.
    let mut counts = vec![0; listeners.len()];
    until("all are taken", || {
        for (count, more) in counts.iter_mut().zip(reached(listeners)) {
            *count += more;
        }
        (counts.iter().sum::<usize>() >= MANY).then_some(())
    });
    Some(counts)
}

#[test]
fn clients_spread_or_stay_and_get_the_endpoints_that_work() {
    clients_spread_or_stay(Family::V4);
}

#[test]
fn clients_spread_or_stay_and_get_the_endpoints_that_work_v6() {
    clients_spread_or_stay(Family::V6);
}

fn clients_spread_or_stay(family: Family) {
    let v6 = family == Family::V6;
    let (cluster, one, _two, second) = two_pods(family);
    let first = one.listen(8080).unwrap();
    cluster.apply(&pod("default", "client", "n1"));
    let client = cluster.bind(1, "default", "client");
    let listeners = [&first, &second];
    cluster.apply(&mixed(json!({})));
    cluster.apply(&slice_of(ready(&cluster, &[1, 2], v6), v6));
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    ends(&client, own, &End::Connected);
    let many = || spread(&client, own, &listeners);
    let to_both = || many()?.iter().all(|count| *count > 0).then_some(());
    until("clients are spread", to_both);

    // Everybody stays with one endpoint, from the first packet on.
    let config = json!({"clientIP": {"timeoutSeconds": 3600}});
    cluster.apply(&mixed(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config})));
    let first_choice = until("a client stays", || many()?.iter().position(|count| *count == MANY));
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    for _ in 0..3 {
        // A datapath that stands still for a moment is asked again; who goes elsewhere is not.
        let reached = until("all are answered", &many);
        assert_eq!(reached[first_choice], MANY, "it stays on: {reached:?}");
    }

    // Those that are on their way out are the last resort; those that are not ready count where it is asked for.
    let leaving = json!({"ready": false, "serving": true, "terminating": true});
    let conditions = |one: Value, two: Value| {
        let endpoints = json!([endpoint(&cluster, 1, v6, one), endpoint(&cluster, 2, v6, two)]);
        cluster.apply(&slice_of(endpoints, v6));
    };
    let only = |which: usize| {
        until(&format!("everybody goes to endpoint {which}"), || (many()?[which] == MANY).then_some(()));
    };
    cluster.apply(&mixed(json!({"sessionAffinity": "None"})));
    conditions(leaving.clone(), json!({"ready": true}));
    only(1);
    conditions(leaving, json!({"ready": false}));
    only(0);
    conditions(json!({"ready": false}), json!({"ready": false}));
    ends(&client, own, &End::Refused);
    cluster.apply(&mixed(json!({"publishNotReadyAddresses": true})));
    until("both count", to_both);

    // Near ones, as somebody else's hints say.
    cluster.lab.kubectl(&["label", "node", "n1", "topology.kubernetes.io/zone=a"]).unwrap();
    cluster.lab.kubectl(&["label", "node", "n2", "topology.kubernetes.io/zone=b"]).unwrap();
    let mut near = ready(&cluster, &[1, 2], v6);
    near[0]["hints"] = json!({"forZones": [{"name": "b"}]});
    near[1]["hints"] = json!({"forZones": [{"name": "a"}]});
    cluster.apply(&slice_of(near, v6));
    only(1);

    if !v6 {
        sctp_is_balanced(&cluster, own.ip());
    }
}

/// The datapath of the lab tracks no SCTP: what OVN would do is asked of its trace.
fn sctp_is_balanced(cluster: &Cluster, to: IpAddr) {
    cluster.apply(&slice_of(ready(cluster, &[2], false), false));
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

/// Answers every packet with a number, until it is dropped.
struct Echo {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(pod: &Pod, number: u8) -> Self {
        let socket = pod.with_network(|| UdpSocket::bind("[::]:8080")).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 16];
            while !told.load(Ordering::Relaxed) {
                if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&[number], from);
                }
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Who answers; a conversation goes on from the same port.
fn who(socket: &UdpSocket, to: SocketAddr) -> Option<u8> {
    let mut buffer = [0; 16];
    // What came too late to an earlier question is no answer to this one.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut buffer).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.send_to(b"?", to).ok()?;
    socket.recv_from(&mut buffer).ok().map(|_| buffer[0])
}

/// Waits until no flow leads to an endpoint, the cached ones of the datapath included. A datagram on a cached flow, between the
/// moment when OVN takes the conversation out of connection tracking and the one when Open vSwitch has looked at its cache,
/// would put it back: so the client is silent meanwhile.
fn flows_are_without(cluster: &Cluster, address: &str) {
    until(&format!("the database is without {address}"), || {
        let balancers = cluster.lab.nbctl(&["--bare", "--columns=vips", "list", "Load_Balancer"]).ok()?;
        let variables = cluster.lab.nbctl(&["--bare", "--columns=variables", "list", "Chassis_Template_Var"]).ok()?;
        (!balancers.contains(address) && !variables.contains(address)).then_some(())
    });
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    for node in 1..=2 {
        cluster.lab.node(node).unwrap().run(&["ovs-appctl", "revalidator/wait"]).unwrap();
    }
}

fn conversations_move(family: Family) {
    let v6 = family == Family::V6;
    let (cluster, one, two, _listener) = two_pods(family);
    cluster.apply(&pod("default", "client", "n1"));
    let client = cluster.bind(1, "default", "client");
    let outside = cluster.lab.machine("outside").unwrap();
    let _echoes = [Echo::start(&one, 1), Echo::start(&two, 2)];
    cluster.apply(&mixed(json!({})));
    cluster.apply(&slice_of(ready(&cluster, &[1, 2], v6), v6));
    let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
    let inner = || client.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
    let outer = || outside.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
    let own = SocketAddr::new(cluster_ip(&cluster), 80);
    let node = Places::of(family).nodes[0];
    for (socket, to) in [(&inner as &dyn Fn() -> UdpSocket, own), (&outer, node)] {
        cluster.apply(&slice_of(ready(&cluster, &[1, 2], v6), v6));
        // A conversation that lost its first packet while a neighbour was looked for never comes about in this datapath: both ways
        // have carried somebody else's before the one that counts begins.
        let mut seen = [false; 2];
        until(&format!("both endpoints answer at {to}"), || {
            seen[usize::from(who(&socket(), to)?) - 1] = true;
            seen.iter().all(|answered| *answered).then_some(())
        });
        let (socket, first) = until("an endpoint answers a new conversation", || {
            let socket = socket();
            let first = who(&socket, to)?;
            Some((socket, first))
        });
        let socket = &socket;
        // Who is not answered asks again; who is answered by another is wrong.
        let answer = || until("somebody answers", || who(socket, to));
        for _ in 0..5 {
            assert_eq!(answer(), first, "a conversation stays where it is");
        }
        // Its endpoint goes, though it would still answer: the conversation goes on with the other.
        let other = 3 - first;
        cluster.apply(&slice_of(ready(&cluster, &[usize::from(other)], v6), v6));
        flows_are_without(&cluster, &cluster.network_of("default", &format!("web-{first}")).address().to_string());
        until(&format!("the conversation with {to} moves"), || (who(socket, to) == Some(other)).then_some(()));
        // And stays there when the first is back.
        cluster.apply(&slice_of(ready(&cluster, &[1, 2], v6), v6));
        cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        assert_eq!(answer(), other);
    }
}

#[test]
fn conversations_by_udp_move_when_their_endpoint_goes() {
    conversations_move(Family::V4);
}

#[test]
fn conversations_by_udp_move_when_their_endpoint_goes_v6() {
    conversations_move(Family::V6);
}
