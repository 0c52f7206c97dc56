//! `ovn-trace` as a daemon that is asked over its control socket: thousands of packets in the time that the command
//! needs for a few; and its answers held against those of the API's documentation.

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
use truth::{Family, Place, Protocol};

use crate::cluster::{Cluster, Network, PATIENCE, Wish, pod};

/// How many questions to the connection tracker a daemon answers with "new" before it has to be started again.
const STATES: usize = 20_000;

/// What a trace says of a packet that takes its state from nowhere.
const STATES_ARE_USED_UP: &str = "default (use --ct to customize)";

/// A daemon on the lab's control machine that knows the southbound database as it was when it was started.
///
/// Every packet is the first of its connection: the tracker's answer is always `ct.new`. The daemon takes these answers
/// from a list that only its command line can give, and that does not begin anew with the next packet; when the list
/// has come to its end, the packet is asked for again of a fresh daemon.
pub(crate) struct Tracer {
    machine: Machine,
    name: String,
    /// How many daemons there have been. Each has a socket of its own: one that ends removes its own, some time later.
    launches: usize,
    states: usize,
    connection: BufReader<UnixStream>,
}

/// What became of a packet.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The ports that it, or what was made of it, was put out of, behind all switches and routers. Where it was
    /// rejected, the port that it came from is one.
    pub(crate) delivered: BTreeSet<String>,
    /// Nothing was put out at all.
    pub(crate) dropped: bool,
    /// All that was said.
    pub(crate) text: String,
}

/// The daemon's answer to a call: JSON-RPC, as all of OVN's control sockets speak it.
#[derive(Deserialize)]
struct Reply {
    result: Option<String>,
    error: Option<Value>,
}

impl Tracer {
    /// Starts a daemon that sees the southbound database as it is now. `name` is that of no other in the same lab.
    pub(crate) fn start(cluster: &Cluster, name: &str) -> Self {
        Self::with_states(cluster, name, STATES)
    }

    fn with_states(cluster: &Cluster, name: &str, states: usize) -> Self {
        let machine = cluster.lab.machine("control").unwrap();
        let connection = launch(&machine, name, 0, states);
        Self { machine, name: name.to_owned(), launches: 1, states, connection }
    }

    /// Looks at the database again: a daemon knows what it read when it was started, and nothing later.
    pub(crate) fn refresh(&mut self) {
        self.ask("exit", &[]);
        self.connection = launch(&self.machine, &self.name, self.launches, self.states);
        self.launches += 1;
    }

    /// What becomes of a packet that enters a switch or router, written as `ovn-trace` wants it.
    pub(crate) fn trace(&mut self, datapath: &str, flow: &str) -> Outcome {
        let mut text = self.ask("trace", &["--summary", "--minimal", datapath, flow]);
        if text.contains(STATES_ARE_USED_UP) {
            self.refresh();
            text = self.ask("trace", &["--summary", "--minimal", datapath, flow]);
            assert!(!text.contains(STATES_ARE_USED_UP), "{} states are too few for one packet:\n{text}", self.states);
        }
        let Some((_, minimal)) = text.split_once("# Minimal trace.\n") else { panic!("{flow}: {text}") };
        let ports = minimal.lines().filter_map(|line| line.trim().strip_prefix("output(\"")?.split_once('"'));
        let delivered: BTreeSet<String> = ports.map(|(port, _)| port.to_owned()).collect();
        Outcome { dropped: delivered.is_empty(), delivered, text }
    }

    fn ask(&mut self, method: &str, parameters: &[&str]) -> String {
        let call = json!({"id": 0, "method": method, "params": parameters});
        self.connection.get_mut().write_all(call.to_string().as_bytes()).unwrap();
        // Answers follow each other without anything between them, and each call waits for its own.
        let mut answers = serde_json::Deserializer::from_reader(&mut self.connection);
        let Reply { result, error } = Reply::deserialize(&mut answers).unwrap();
        assert_eq!(error, None, "{method} {parameters:?}");
        result.unwrap_or_default()
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It ends with its machine at the latest.
        let _ = self
            .connection
            .get_mut()
            .write_all(json!({"id": 0, "method": "exit", "params": []}).to_string().as_bytes());
    }
}

/// Starts a daemon, which has read the database when its command returns, and connects to it.
fn launch(machine: &Machine, name: &str, number: usize, states: usize) -> BufReader<UnixStream> {
    let socket = format!("/tmp/{name}-{number}.ctl");
    let control = format!("--unixctl={socket}");
    let mut words = vec!["ovn-trace", "--detach", "--no-leader-only", &control];
    words.extend(std::iter::repeat_n("--ct=new", states));
    machine.run(&words).unwrap();
    // The machine's files as its first process sees them.
    let path = PathBuf::from(format!("/proc/{}/root{socket}", machine.init().pid));
    let connection = UnixStream::connect(path).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(connection)
}

/// The first packet of a connection of a pod.
pub(crate) struct Packet<'a> {
    pub(crate) inport: &'a str,
    pub(crate) source: (Mac, IpAddr),
    /// Who the frame is for: the destination if it is on the same switch, or else the router.
    pub(crate) next: Mac,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

impl Packet<'_> {
    /// As `ovn-trace` wants it.
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

/// Does the trace of a packet end as the documentation says that it has to? `port` is that of the destination. What
/// differs comes back as text to be read, with both sides' reasons.
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
        let (said, found) =
            (if verdict.allowed { "allowed" } else { "denied" }, if arrived { "arrived" } else { "lost" });
        let why = verdict.why.join("\n  ");
        format!("{question:?} is {said} by the objects and {found} by the trace:\n  {why}\n{}", outcome.text)
    })
}

/// Two nodes with two pods each, and their networks.
struct Four {
    cluster: Cluster,
    pods: Vec<(&'static str, &'static str, Network)>,
}

fn four(purpose: &'static str) -> Four {
    let cluster = Wish::new(purpose).nodes(2).start();
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
    Four { cluster, pods }
}

impl Four {
    /// The objects, with the addresses that a kubelet would write into the pods' status, as the second opinion sees them.
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

    /// The packet from one pod to another, by their places in the list, with the switch that it enters.
    fn packet<'a>(&self, from: usize, to: usize, inport: &'a str, protocol: Protocol, port: u16) -> (&str, Packet<'a>) {
        let ((_, from_node, source), (_, to_node, target)) = (&self.pods[from], &self.pods[to]);
        let next = if from_node == to_node { target.mac } else { Mac::for_address(source.gateways[0]) };
        let source = (source.mac, source.address());
        (from_node, Packet { inport, source, next, destination: target.address(), protocol, port })
    }
}

#[test]
fn traces_say_what_the_documentation_says() {
    let four = four("tracer");
    let documented = four.documented();
    let mut tracer = Tracer::start(&four.cluster, "tracer");
    let mut asked = 0;
    for from in 0..four.pods.len() {
        for to in (0..four.pods.len()).filter(|to| *to != from) {
            for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                let (sender, receiver) = (four.pods[from].0, four.pods[to].0);
                let question = Tuple {
                    from: Place::pod("default", sender),
                    to: Place::pod("default", receiver),
                    protocol,
                    port: 80,
                    family: Family::V4,
                };
                let (inport, outport) = (format!("default_{sender}"), format!("default_{receiver}"));
                let (switch, packet) = four.packet(from, to, &inport, protocol, 80);
                assert_eq!(disagreement(&mut tracer, &documented, &question, switch, &packet, &outport), None);
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 36);

    // What is dropped is seen to be, after a new look and not before; and so is what only a new connection meets, again
    // and again, with a daemon whose list of states ends within a few packets.
    four.cluster.lab.kill("c1").unwrap();
    let mut forgetful = Tracer::with_states(&four.cluster, "forgetful", 3);
    let rule = |port: u16| format!("outport == \"default_b1\" && tcp.dst == {port}");
    four.cluster.lab.nbctl(&["acl-add", "n1", "to-lport", "1000", &format!("{} && ct.new", rule(81)), "drop"]).unwrap();
    four.cluster.lab.nbctl(&["acl-add", "n1", "to-lport", "1000", &rule(82), "allow-related"]).unwrap();
    four.cluster.lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    let (_, dropped) = four.packet(0, 1, "default_a1", Protocol::Tcp, 81);
    let (_, tracked) = four.packet(0, 1, "default_a1", Protocol::Tcp, 82);
    assert!(!tracer.trace("n1", &dropped.flow()).dropped, "the daemon's picture is that of its start");
    tracer.refresh();
    forgetful.refresh();
    for _ in 0..20 {
        for tracer in [&mut tracer, &mut forgetful] {
            let outcome = tracer.trace("n1", &dropped.flow());
            assert!(outcome.dropped, "{}", outcome.text);
            let outcome = tracer.trace("n1", &tracked.flow());
            assert_eq!(outcome.delivered, BTreeSet::from(["default_b1".to_owned()]), "{}", outcome.text);
        }
    }
}
