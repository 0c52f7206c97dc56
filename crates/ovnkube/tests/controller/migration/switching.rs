//! From OVN-Kubernetes (Go) to ours and back, under streams of numbered packets: none is lost, and none passes that a
//! policy denies.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Output;
use std::sync::Mutex;

use lab::{Machine, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, PATIENCE, Wish, pod, until};
use crate::prober::{Moment, PORT, Prober, WayId};
use crate::rows::text;

use super::go_rows::GO;

const NODE_PORT: u16 = 30070;

/// A pod as the Go controller annotates it: the n-th of its node.
fn annotated(name: &str, node: u32, number: u32) -> Value {
    let subnet = format!("10.128.{}", 2 * (node - 1));
    let address = format!("{subnet}.{}", 2 + number);
    let mac = format!("0a:58:0a:80:{:02x}:{:02x}", 2 * (node - 1), 2 + number);
    let network = json!({"default": {"ip_addresses": [format!("{address}/23")], "mac_address": mac,
        "gateway_ips": [format!("{subnet}.1")], "ip_address": format!("{address}/23"),
        "gateway_ip": format!("{subnet}.1")}});
    let mut object = pod("default", name, &format!("n{node}"));
    object["metadata"]["labels"] = json!({"app": name});
    object["metadata"]["annotations"] = json!({"k8s.ovn.org/pod-networks": network.to_string()});
    object
}

/// A cluster of the Go controller, and packets on their way.
struct Switching {
    /// Before the cluster: it stops sending before there is no network to send on.
    prober: Prober,
    cluster: Cluster,
    allowed: Vec<WayId>,
    denied: Vec<WayId>,
    /// Since when nothing that is denied passes.
    closed: Moment,
    _pods: Vec<Pod>,
    losses: Mutex<Vec<String>>,
}

impl Switching {
    fn start() -> Self {
        let cluster = Wish::new("switching").nodes(2).start();
        for node in 1..=2 {
            cluster.add_node(node);
            let subnets = json!({"default": [format!("10.128.{}.0/23", 2 * (node - 1))]}).to_string();
            let name = format!("n{node}");
            let id = (node + 1).to_string();
            cluster.annotate("node", &name, &[("k8s.ovn.org/node-subnets", &subnets), ("k8s.ovn.org/node-id", &id)]);
        }
        let places = [("client", 1, 1), ("stranger", 1, 2), ("web", 2, 1), ("echo", 2, 2)];
        cluster.apply_all(&places.map(|(name, node, number)| annotated(name, node, number)));
        let from = json!([{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}]);
        let port = json!({"name": "", "port": PORT, "protocol": "UDP"});
        cluster.apply_all(&[
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"name": "only-clients", "namespace": "default"},
                "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": from}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo", "namespace": "default"},
                "spec": {"type": "NodePort", "ports": [{"port": PORT, "nodePort": NODE_PORT, "protocol": "UDP"}]}}),
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": "echo-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "echo"}},
                "ports": [port],
                "endpoints": [{"addresses": ["10.128.2.4"], "nodeName": "n2", "conditions": {"ready": true}}]}),
        ]);
        cluster.sync_go();
        let pods: Vec<Pod> = places.iter().map(|(name, node, _)| cluster.bind(*node, "default", name)).collect();
        cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        let [client, stranger, web, echo] = &pods[..] else { panic!("four pods") };
        let prober = Prober::default();
        prober.listen(web);
        prober.listen(echo);
        let outside = cluster.lab.machine("outside").unwrap();
        let web = SocketAddr::new("10.128.2.3".parse().unwrap(), PORT);
        let service =
            cluster.get(&["service", "echo"])["spec"]["clusterIP"].as_str().unwrap().parse::<IpAddr>().unwrap();
        let mut allowed = vec![
            prober.send_calmly("client to web", inside(client), web),
            prober.send_calmly("client to the Service", inside(client), SocketAddr::new(service, PORT)),
        ];
        for node in ["10.99.0.221", "10.99.0.222"] {
            let target = SocketAddr::new(node.parse().unwrap(), NODE_PORT);
            allowed.push(prober.send_calmly(&format!("outside to {target}"), on(&outside), target));
        }
        let denied = vec![prober.send_calmly("stranger to web", inside(stranger), web)];
        prober.open(&allowed);
        let closed = prober.closed(&denied);
        Self { cluster, prober, allowed, denied, closed, _pods: pods, losses: Mutex::default() }
    }

    /// A step of a switch: nothing leaks, and what is lost is kept.
    fn step(&self, what: &str, step: impl FnOnce(&Cluster)) {
        let begin = self.prober.now();
        step(&self.cluster);
        self.cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        self.prober.open(&self.allowed);
        self.prober.nothing_passed(what, &self.denied, &self.closed);
        for way in &self.allowed {
            let (lost, sent) = (self.prober.lost(*way, &begin), self.prober.sent(*way, &begin));
            let said = format!("{what}: {}: {} of {sent} lost", self.prober.name(*way), lost.len());
            println!("{said}");
            if !lost.is_empty() {
                let first: Vec<u64> = lost.into_iter().take(30).collect();
                self.losses.lock().unwrap().push(format!("{said}: {first:?}"));
            }
        }
    }
}

/// A new socket of a pod.
fn inside(pod: &Pod) -> impl Fn() -> UdpSocket + Send + 'static {
    let pod = pod.clone();
    move || pod.with_network(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap()
}

fn on(machine: &Machine) -> impl Fn() -> UdpSocket + Send + 'static {
    let machine = machine.clone();
    move || machine.with_network(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap()
}

impl Cluster {
    fn release(&self, more: &[&str]) -> Output {
        let northbound = self.lab.record().endpoints.northbound.unwrap();
        let kubeconfig = self.lab.record().endpoints.kubeconfig.unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ovnkube"));
        command.args(["release", "--nb-address", &northbound, "--kubeconfig"]).arg(kubeconfig).args(more);
        command.output().unwrap()
    }

    /// What tells rows apart that have no mark of ours: by table, their names or contents, without identities and marks.
    fn contents(&self) -> Vec<String> {
        let mut all = Vec::new();
        for table in crate::rows::tables() {
            for row in self.raw(table) {
                let word = |column: &str| row.get(column).map(text).unwrap_or_default();
                let words =
                    ["name", "match", "priority", "ip_prefix", "nexthop", "logical_ip", "rate", "logical_port", "vips"]
                        .map(word);
                all.push(format!("{table} {}", words.join(" ").trim()));
            }
        }
        all.retain(|row| !row.starts_with("Chassis_Template_Var"));
        all.sort();
        all
    }

    fn wait_everything_reviewed(&self, name: &str) {
        until(&format!("{name} has reviewed everything"), || {
            self.lab.log(name).unwrap().contains("everything was reviewed").then_some(())
        });
    }
}

const KEPT: [&str; 6] =
    ["Logical_Switch", "Logical_Router", "Logical_Switch_Port", "Logical_Router_Port", "Load_Balancer_Group", "Copp"];

/// Both directions, as docs/migration.md describes them, and once more to ours.
#[test]
fn no_packet_is_lost_from_go_to_ours_and_back() {
    let switching = Switching::start();
    let cluster = &switching.cluster;
    let (go, settings) = (cluster.contents(), text(&cluster.raw("NB_Global")[0]["external_ids"]));
    let identities = || KEPT.map(|table| cluster.identities(table));
    let (rows, keys) = (identities(), cluster.tunnel_keys());
    let balancer = |name: &str| cluster.identities("Load_Balancer").get(name).cloned();
    let of_service = balancer("Service_default/echo_UDP_cluster");

    switching.step("Go to ours", |cluster| {
        cluster.controller_with("c1", &["--adopt"]);
        cluster.wait_everything_reviewed("c1");
    });
    assert_eq!((rows, &keys), (identities(), &cluster.tunnel_keys()));
    assert_eq!(of_service, balancer("Service_default/echo_UDP_cluster"));
    let left: Vec<String> = cluster.whole().into_values().filter(|row| row.contains(GO)).collect();
    assert!(left.is_empty(), "{left:#?}");
    assert!(!cluster.identities("Meter").contains_key("acl-logging"));
    let log = cluster.lab.log("c1").unwrap();
    assert!(!log.contains("refused") && !log.contains("are kept"), "{log}");

    // While ours leads, and before the other one has its rows in place, nothing is released.
    let ours = cluster.whole();
    let leads = cluster.release(&[]);
    let words = String::from_utf8_lossy(&leads.stderr).into_owned();
    assert!(leads.status.code() == Some(1) && words.contains("controller c1 leads"), "{words}");
    // Also where its Lease is looked for in the wrong place, and whatever may be removed.
    let elsewhere = ["--leader-election-namespace", "default"];
    for more in [&["--remove-unreplaced"][..], &["--dry-run"]] {
        let leads = cluster.release(&[&elsewhere, more].concat());
        let words = String::from_utf8_lossy(&leads.stderr).into_owned();
        assert!(leads.status.code() == Some(1) && words.contains("controller c1 leads"), "{more:?}: {words}");
    }
    assert_eq!(ours, cluster.whole());
    assert!(cluster.lab.terminate("c1", PATIENCE).unwrap().success());
    let early = cluster.release(&[]);
    let words = String::from_utf8_lossy(&early.stdout).into_owned();
    assert!(early.status.code() == Some(3) && words.contains("network policy default/only-clients"), "{early:?}");
    assert_eq!(ours, cluster.whole());

    switching.step("the Go controller starts beside our rows", Cluster::sync_go);
    let both = cluster.whole();
    let rehearsal = cluster.release(&["--dry-run"]);
    assert!(rehearsal.status.success(), "{rehearsal:?}");
    assert_eq!(both, cluster.whole());
    switching.step("ours is released", |cluster| {
        let released = cluster.release(&[]);
        assert!(released.status.success(), "{released:?}");
    });
    assert_eq!(keys, cluster.tunnel_keys());
    let left: Vec<String> = cluster.whole().into_values().filter(|row| row.contains("=ovnkube")).collect();
    assert!(left.is_empty(), "{left:#?}");
    assert_eq!(settings, text(&cluster.raw("NB_Global")[0]["external_ids"]));
    assert_eq!(go, cluster.contents());

    // Ours does not come back by itself, and does when it is asked to.
    cluster.controller("c2");
    assert_eq!(cluster.lab.wait_end("c2", PATIENCE).unwrap().code(), Some(1));
    switching.step("Go to ours again", |cluster| {
        cluster.controller_with("c3", &["--adopt"]);
        cluster.wait_everything_reviewed("c3");
    });
    assert_eq!(keys, cluster.tunnel_keys());
    let left: Vec<String> = cluster.whole().into_values().filter(|row| row.contains(GO)).collect();
    assert!(left.is_empty(), "{left:#?}");
    // What nobody wants any more is not in force.
    cluster.lab.kubectl(&["delete", "networkpolicy", "only-clients"]).unwrap();
    switching.prober.open(&switching.denied);
    let losses = switching.losses.into_inner().unwrap();
    assert!(losses.is_empty(), "{losses:#?}");
}
