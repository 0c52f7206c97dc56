//! Migration from OVN-Kubernetes (Go) to ovnkube and back under numbered packets: none is lost, and none passes that a
//! policy denies.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Output;
use std::sync::Mutex;

use controller::messages::{LEFTOVERS_KEPT, TRANSACTION_REFUSED};
use lab::{Machine, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, TIMEOUT, pod, until};
use crate::prober::{Moment, PORT, PathId, Prober};
use crate::rows::text;

use super::go_rows::GO;

const NODE_PORT: u16 = 30070;

/// A pod with the Go controller's annotation: the n-th of its node.
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

/// A cluster with the Go controller's rows, and a running prober.
struct Switching {
    /// Declared before the cluster, so that it stops before the network is removed.
    prober: Prober,
    cluster: Cluster,
    allowed: Vec<PathId>,
    denied: Vec<PathId>,
    /// When the denied paths were closed.
    closed: Moment,
    _pods: Vec<Pod>,
    losses: Mutex<Vec<String>>,
}

impl Switching {
    fn start() -> Self {
        let cluster = ClusterSpec::new("switching").nodes(2).start();
        for node in 1..=2 {
            cluster.add_node(node);
            let subnets = json!({"default": [format!("10.128.{}.0/23", 2 * (node - 1))]}).to_string();
            let name = format!("n{node}");
            let id = (node + 1).to_string();
            cluster.annotate("node", &name, &[("k8s.ovn.org/node-subnets", &subnets), ("k8s.ovn.org/node-id", &id)]);
        }
        let pods_on_nodes = [("client", 1, 1), ("stranger", 1, 2), ("web", 2, 1), ("echo", 2, 2)];
        cluster.apply_all(&pods_on_nodes.map(|(name, node, number)| annotated(name, node, number)));
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
        let pods: Vec<Pod> = pods_on_nodes.iter().map(|(name, node, _)| cluster.bind(*node, "default", name)).collect();
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
            prober.send_slowly("client to web", inside(client), web),
            prober.send_slowly("client to the Service", inside(client), SocketAddr::new(service, PORT)),
        ];
        for node in ["10.99.0.221", "10.99.0.222"] {
            let target = SocketAddr::new(node.parse().unwrap(), NODE_PORT);
            allowed.push(prober.send_slowly(&format!("outside to {target}"), on(&outside), target));
        }
        let denied = vec![prober.send_slowly("stranger to web", inside(stranger), web)];
        prober.wait_open(&allowed);
        let closed = prober.wait_closed(&denied);
        Self { cluster, prober, allowed, denied, closed, _pods: pods, losses: Mutex::default() }
    }

    /// One migration step: no denied packet passes, and losses are recorded.
    fn step(&self, what: &str, step: impl FnOnce(&Cluster)) {
        let begin = self.prober.now();
        step(&self.cluster);
        self.cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        self.prober.wait_open(&self.allowed);
        self.prober.assert_nothing_passed(what, &self.denied, &self.closed);
        for path in &self.allowed {
            let (lost, sent) = (self.prober.lost(*path, &begin), self.prober.sent(*path, &begin));
            let said = format!("{what}: {}: {} of {sent} lost", self.prober.name(*path), lost.len());
            println!("{said}");
            if !lost.is_empty() {
                let first: Vec<u64> = lost.into_iter().take(30).collect();
                self.losses.lock().unwrap().push(format!("{said}: {first:?}"));
            }
        }
    }
}

/// A function that opens sockets in a pod.
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

    /// All rows as table and identifying columns, without UUIDs and `external_ids`.
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

    fn wait_resync(&self, name: &str) {
        until(&format!("{name} has resynced"), || {
            self.lab.log(name).unwrap().contains("resync complete").then_some(())
        });
    }
}

const KEPT: [&str; 6] =
    ["Logical_Switch", "Logical_Router", "Logical_Switch_Port", "Logical_Router_Port", "Load_Balancer_Group", "Copp"];

/// Both directions, as docs/migration.md describes them, and once more to ovnkube.
#[test]
fn migration_from_go_and_back_loses_no_packet() {
    let switching = Switching::start();
    let cluster = &switching.cluster;
    let (go, settings) = (cluster.contents(), text(&cluster.raw("NB_Global")[0]["external_ids"]));
    let identities = || KEPT.map(|table| cluster.identities(table));
    let (rows, keys) = (identities(), cluster.tunnel_keys());
    let balancer = |name: &str| cluster.identities("Load_Balancer").get(name).cloned();
    let of_service = balancer("Service_default/echo_UDP_cluster");

    switching.step("Go to ovnkube", |cluster| {
        cluster.controller_with("c1", &["--adopt"]);
        cluster.wait_resync("c1");
    });
    assert_eq!((rows, &keys), (identities(), &cluster.tunnel_keys()));
    assert_eq!(of_service, balancer("Service_default/echo_UDP_cluster"));
    let left: Vec<String> = cluster.all_rows().into_values().filter(|row| row.contains(GO)).collect();
    assert!(left.is_empty(), "{left:#?}");
    assert!(!cluster.identities("Meter").contains_key("acl-logging"));
    let log = cluster.lab.log("c1").unwrap();
    for message in [TRANSACTION_REFUSED, LEFTOVERS_KEPT] {
        assert!(!log.contains(message), "{log}");
    }

    // Release is refused while a controller leads, and before the Go controller's rows exist.
    let ours = cluster.all_rows();
    let leads = cluster.release(&[]);
    let words = String::from_utf8_lossy(&leads.stderr).into_owned();
    assert!(leads.status.code() == Some(1) && words.contains("controller c1 leads"), "{words}");
    // Also with the wrong Lease namespace, and with other flags.
    let elsewhere = ["--leader-election-namespace", "default"];
    for more in [&["--remove-unreplaced"][..], &["--dry-run"]] {
        let leads = cluster.release(&[&elsewhere, more].concat());
        let words = String::from_utf8_lossy(&leads.stderr).into_owned();
        assert!(leads.status.code() == Some(1) && words.contains("controller c1 leads"), "{more:?}: {words}");
    }
    assert_eq!(ours, cluster.all_rows());
    assert!(cluster.lab.terminate("c1", TIMEOUT).unwrap().success());
    let early = cluster.release(&[]);
    let words = String::from_utf8_lossy(&early.stdout).into_owned();
    assert!(early.status.code() == Some(3) && words.contains("network policy default/only-clients"), "{early:?}");
    assert_eq!(ours, cluster.all_rows());

    switching.step("the Go controller starts with ovnkube's rows in place", Cluster::sync_go);
    let both = cluster.all_rows();
    let dry_run = cluster.release(&["--dry-run"]);
    assert!(dry_run.status.success(), "{dry_run:?}");
    assert_eq!(both, cluster.all_rows());
    switching.step("ovnkube is released", |cluster| {
        let released = cluster.release(&[]);
        assert!(released.status.success(), "{released:?}");
    });
    assert_eq!(keys, cluster.tunnel_keys());
    let left: Vec<String> = cluster.all_rows().into_values().filter(|row| row.contains("=ovnkube")).collect();
    assert!(left.is_empty(), "{left:#?}");
    assert_eq!(settings, text(&cluster.raw("NB_Global")[0]["external_ids"]));
    assert_eq!(go, cluster.contents());

    // ovnkube takes over again only with `--adopt`.
    cluster.controller("c2");
    assert_eq!(cluster.lab.wait_end("c2", TIMEOUT).unwrap().code(), Some(1));
    switching.step("Go to ovnkube again", |cluster| {
        cluster.controller_with("c3", &["--adopt"]);
        cluster.wait_resync("c3");
    });
    assert_eq!(keys, cluster.tunnel_keys());
    let left: Vec<String> = cluster.all_rows().into_values().filter(|row| row.contains(GO)).collect();
    assert!(left.is_empty(), "{left:#?}");
    // A deleted policy is not in effect.
    cluster.lab.kubectl(&["delete", "networkpolicy", "only-clients"]).unwrap();
    switching.prober.wait_open(&switching.denied);
    let losses = switching.losses.into_inner().unwrap();
    assert!(losses.is_empty(), "{losses:#?}");
}
