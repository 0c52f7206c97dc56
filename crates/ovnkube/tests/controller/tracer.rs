//! `ovn-trace` as a daemon, called over its control socket: thousands of packets in the time that the command needs for a
//! few; compared with the API's documentation.

use std::collections::BTreeSet;
use std::io::{BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use lab::Machine;
use netmodel::Mac;
use serde::Deserialize;
use serde_json::{Value, json};
use truth::random::Tuple;
use truth::{Family, Protocol, TrafficEnd};

use crate::cluster::{Cluster, ClusterSpec, Network, TIMEOUT, pod};

/// How many conntrack lookups a daemon answers with "new" before it must be restarted.
const CT_STATES: usize = 20_000;

/// In the trace of a packet when the list of states is exhausted.
const CT_STATES_EXHAUSTED: &str = "default (use --ct to customize)";

/// A daemon on the lab's control machine with the southbound database as of its start.
///
/// Every packet is the first of its connection: each conntrack lookup gives `ct.new`. The daemon takes these states from a
/// list on its command line that does not restart with the next packet; when it is exhausted, the packet is traced again
/// with a new daemon.
pub(crate) struct Tracer {
    machine: Machine,
    name: String,
    /// Daemons started so far. Each has its own socket: an ending daemon removes its socket with a delay.
    launches: usize,
    states: usize,
    connection: BufReader<UnixStream>,
}

/// The result of a trace.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The ports at which the packet, or packets derived from it, were delivered. A rejected packet is delivered to the port
    /// that it came from.
    pub(crate) delivered: BTreeSet<String>,
    /// Nothing was delivered.
    pub(crate) dropped: bool,
    pub(crate) text: String,
}

/// A JSON-RPC reply of an OVN control socket.
#[derive(Deserialize)]
struct Reply {
    result: Option<String>,
    error: Option<Value>,
}

impl Tracer {
    /// Starts a daemon with the current southbound database. `name` must be unique in the lab.
    pub(crate) fn start(cluster: &Cluster, name: &str) -> Self {
        Self::with_states(cluster, name, CT_STATES)
    }

    fn with_states(cluster: &Cluster, name: &str, states: usize) -> Self {
        let machine = cluster.lab.machine("control").unwrap();
        let connection = launch(&machine, name, 0, states);
        Self { machine, name: name.to_owned(), launches: 1, states, connection }
    }

    /// Restarts the daemon, so that it reads the database again.
    pub(crate) fn refresh(&mut self) {
        self.ask("exit", &[]);
        self.connection = launch(&self.machine, &self.name, self.launches, self.states);
        self.launches += 1;
    }

    /// Traces a packet that enters a switch or router, in the syntax of `ovn-trace`.
    pub(crate) fn trace(&mut self, datapath: &str, flow: &str) -> Outcome {
        let mut text = self.ask("trace", &["--summary", "--minimal", datapath, flow]);
        if text.contains(CT_STATES_EXHAUSTED) {
            self.refresh();
            text = self.ask("trace", &["--summary", "--minimal", datapath, flow]);
            assert!(!text.contains(CT_STATES_EXHAUSTED), "{} states are too few for one packet:\n{text}", self.states);
        }
        let Some((_, minimal)) = text.split_once("# Minimal trace.\n") else { panic!("{flow}: {text}") };
        let ports = minimal.lines().filter_map(|line| line.trim().strip_prefix("output(\"")?.split_once('"'));
        let delivered: BTreeSet<String> = ports.map(|(port, _)| port.to_owned()).collect();
        Outcome { dropped: delivered.is_empty(), delivered, text }
    }

    fn ask(&mut self, method: &str, parameters: &[&str]) -> String {
        let call = json!({"id": 0, "method": method, "params": parameters});
        self.connection.get_mut().write_all(call.to_string().as_bytes()).unwrap();
        // Replies have no separator; each call reads its own.
        let mut answers = serde_json::Deserializer::from_reader(&mut self.connection);
        let Reply { result, error } = Reply::deserialize(&mut answers).unwrap();
        assert_eq!(error, None, "{method} {parameters:?}");
        result.unwrap_or_default()
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Best effort: the daemon ends with its machine at the latest.
        let _ = self
            .connection
            .get_mut()
            .write_all(json!({"id": 0, "method": "exit", "params": []}).to_string().as_bytes());
    }
}

/// Starts a daemon and connects to it; `--detach` returns when it has read the database.
fn launch(machine: &Machine, name: &str, number: usize, states: usize) -> BufReader<UnixStream> {
    let socket = format!("/tmp/{name}-{number}.ctl");
    let control = format!("--unixctl={socket}");
    let mut words = vec!["ovn-trace", "--detach", "--no-leader-only", &control];
    words.extend(std::iter::repeat_n("--ct=new", states));
    machine.run(&words).unwrap();
    // The path in the machine's mount namespace.
    let path = PathBuf::from(format!("/proc/{}/root{socket}", machine.init().pid));
    let connection = UnixStream::connect(path).unwrap();
    connection.set_read_timeout(Some(TIMEOUT)).unwrap();
    BufReader::new(connection)
}

/// The first packet of a pod's connection.
pub(crate) struct Packet<'a> {
    pub(crate) inport: &'a str,
    pub(crate) source: (Mac, IpAddr),
    /// The destination MAC: the destination's on the same switch, else the router's.
    pub(crate) next: Mac,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

impl Packet<'_> {
    /// In the syntax of `ovn-trace`.
    pub(crate) fn flow(&self) -> String {
        let Self { inport, source: (mac, source), next, destination, protocol, port } = self;
        let ip = if source.is_ipv4() { "ip4" } else { "ip6" };
        let transport = protocol.to_string().to_lowercase();
        format!(
            "inport == \"{inport}\" && eth.src == {mac} && eth.dst == {next} && {ip}.src == {source} && \
             {ip}.dst == {destination} && ip.ttl == 64 && {transport}.src == 40000 && {transport}.dst == {port}"
        )
    }
}

/// Compares a trace with the API's documentation; `port` is the destination's port. Returns a difference as text, with the
/// reasons of both sides.
pub(crate) fn disagreement(
    tracer: &mut Tracer,
    documented: &truth::Cluster,
    question: &Tuple,
    datapath: &str,
    packet: &Packet<'_>,
    port: &str,
) -> Option<String> {
    let verdict = question.verdict(documented);
    let outcome = tracer.trace(datapath, &packet.flow());
    let arrived = outcome.delivered.contains(port);
    (arrived != verdict.allowed).then(|| {
        let (expected, found) =
            (if verdict.allowed { "allowed" } else { "denied" }, if arrived { "arrived" } else { "lost" });
        let why = verdict.why.join("\n  ");
        format!("{question:?} is {expected} by the API and {found} by the trace:\n  {why}\n{}", outcome.text)
    })
}

/// Two nodes with two pods each, and their networks.
struct FourPods {
    cluster: Cluster,
    pods: Vec<(&'static str, &'static str, Network)>,
}

fn start_four_pods(purpose: &'static str) -> FourPods {
    let cluster = ClusterSpec::new(purpose).nodes(2).start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    let places = [("a1", "n1"), ("b1", "n1"), ("a2", "n2"), ("b2", "n2")];
    for (name, node) in places {
        cluster.apply(&pod("default", name, node));
    }
    let pods = places.map(|(name, node)| (name, node, cluster.network_of("default", name))).into();
    cluster.lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    FourPods { cluster, pods }
}

impl FourPods {
    /// The API objects for the independent evaluation, with pod addresses as a kubelet would write them into the status.
    fn documented(&self) -> truth::Cluster {
        let mut objects = Vec::new();
        for kind in ["nodes", "namespaces", "pods"] {
            objects.extend(self.cluster.get(&[kind, "-A"])["items"].as_array().unwrap().iter().cloned());
        }
        for (name, _, network) in &self.pods {
            let own = objects.iter_mut().find(|object| object["kind"] == "Pod" && object["metadata"]["name"] == *name);
            own.unwrap()["status"]["podIPs"] = json!([{"ip": network.address()}]);
        }
        truth::Cluster::from_objects(&objects).unwrap()
    }

    /// A packet from one pod to another, by index, and the switch that it enters.
    fn packet<'a>(&self, from: usize, to: usize, inport: &'a str, protocol: Protocol, port: u16) -> (&str, Packet<'a>) {
        let ((_, from_node, source), (_, to_node, target)) = (&self.pods[from], &self.pods[to]);
        let next = if from_node == to_node { target.mac } else { Mac::for_address(source.gateways[0]) };
        let source = (source.mac, source.address());
        (from_node, Packet { inport, source, next, destination: target.address(), protocol, port })
    }
}

#[test]
fn traces_agree_with_the_api_documentation() {
    let pods = start_four_pods("tracer");
    let documented = pods.documented();
    let mut tracer = Tracer::start(&pods.cluster, "tracer");
    let mut asked = 0;
    for from in 0..pods.pods.len() {
        for to in (0..pods.pods.len()).filter(|to| *to != from) {
            for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                let (sender, receiver) = (pods.pods[from].0, pods.pods[to].0);
                let question = Tuple {
                    from: TrafficEnd::pod("default", sender),
                    to: TrafficEnd::pod("default", receiver),
                    protocol,
                    port: 80,
                    family: Family::V4,
                };
                let (inport, outport) = (format!("default_{sender}"), format!("default_{receiver}"));
                let (switch, packet) = pods.packet(from, to, &inport, protocol, 80);
                assert_eq!(disagreement(&mut tracer, &documented, &question, switch, &packet, &outport), None);
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 36);

    // Drops are seen after a refresh and not before; also by a daemon whose list of states is exhausted within a few packets.
    pods.cluster.lab.kill("c1").unwrap();
    let mut short_lived = Tracer::with_states(&pods.cluster, "short-lived", 3);
    let rule = |port: u16| format!("outport == \"default_b1\" && tcp.dst == {port}");
    pods.cluster.lab.nbctl(&["acl-add", "n1", "to-lport", "1000", &format!("{} && ct.new", rule(81)), "drop"]).unwrap();
    pods.cluster.lab.nbctl(&["acl-add", "n1", "to-lport", "1000", &rule(82), "allow-related"]).unwrap();
    pods.cluster.lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    let (_, dropped) = pods.packet(0, 1, "default_a1", Protocol::Tcp, 81);
    let (_, tracked) = pods.packet(0, 1, "default_a1", Protocol::Tcp, 82);
    assert!(!tracer.trace("n1", &dropped.flow()).dropped, "the daemon has the database of its start");
    tracer.refresh();
    short_lived.refresh();
    for _ in 0..20 {
        for tracer in [&mut tracer, &mut short_lived] {
            let outcome = tracer.trace("n1", &dropped.flow());
            assert!(outcome.dropped, "{}", outcome.text);
            let outcome = tracer.trace("n1", &tracked.flow());
            assert_eq!(outcome.delivered, BTreeSet::from(["default_b1".to_owned()]), "{}", outcome.text);
        }
    }
}
