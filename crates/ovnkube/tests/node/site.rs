//! A cluster in the lab with the controller and node agents; pods are objects, and tests create the sandboxes.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use lab::{Family, Machine, Program};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, TIMEOUT, pod, until};
use crate::networks::networks;
use crate::sandbox::Sandbox;

/// Where the agents serve their metrics.
const METRICS: &str = "127.0.0.1:9410";

pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    /// The southbound remote of agents and ovn-controllers.
    southbound: String,
}

/// Builds the installed plugin once per test process.
pub(crate) fn shim() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
            let built = std::process::Command::new(root.join("crates/cni-shim/build.sh")).status().unwrap();
            assert!(built.success());
            root.join("target/shim/ovn-k8s-cni-overlay").canonicalize().unwrap()
        })
        .clone()
}

impl Site {
    /// A leading controller and nodes with their networks; no agents yet.
    pub(crate) fn start(purpose: &'static str, nodes: u32, family: Family) -> Self {
        Self::on(ClusterSpec::new(purpose), nodes, family)
    }

    /// With raft databases, which nodes reach over the network.
    pub(crate) fn start_raft(purpose: &'static str, nodes: u32) -> Self {
        let mut site = Self::on(ClusterSpec::new(purpose).raft(), nodes, Family::V4);
        site.southbound = site.cluster.lab.record().endpoints.southbound_remote.unwrap();
        site
    }

    fn on(spec: ClusterSpec, nodes: u32, family: Family) -> Self {
        let mut spec = spec.nodes(nodes).arguments(&networks(family));
        spec.family = family;
        let cluster = spec.start();
        cluster.controller("c1");
        cluster.wait_leader("c1");
        for node in 1..=nodes {
            cluster.add_node(node);
        }
        let southbound = cluster.lab.record().endpoints.southbound.unwrap();
        let site = Self { cluster, southbound };
        for node in 1..=nodes {
            site.copy_plugin(node);
        }
        site
    }

    /// Copies the plugin to where the agent finds it.
    fn copy_plugin(&self, node: u32) {
        let to = self.path(node, "/opt/ovnkube/ovn-k8s-cni-overlay");
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(shim(), to).unwrap();
    }

    pub(crate) fn machine(&self, node: u32) -> Machine {
        self.cluster.lab.node(node).unwrap()
    }

    /// A node's path in this process' file system.
    pub(crate) fn path(&self, node: u32, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.machine(node).init().pid))
    }

    /// Starts a node's agent; its CNI server listens when this returns.
    pub(crate) fn agent(&self, node: u32, more: &[&str]) {
        self.agent_with_path(node, "/usr/sbin:/usr/bin:/sbin:/bin", more);
    }

    /// Like [`Self::agent`], with another `PATH`.
    pub(crate) fn agent_with_path(&self, node: u32, programs: &str, more: &[&str]) {
        let family = self.cluster.lab.record().spec.family;
        let program = Program::new(format!("agent-n{node}"), PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
            .on(&format!("n{node}"))
            .environment("PATH", programs)
            .arguments(["node", "--node", &format!("n{node}"), "--log-level", "info"])
            .arguments(["--sb-address", &self.southbound, "--metrics-bind-address", METRICS])
            .arguments(["--cni-shim", "/opt/ovnkube/ovn-k8s-cni-overlay", "--cni-bin-dir", "/opt/cni/bin"])
            .arguments(networks(family))
            .arguments(more.iter().copied())
            .ready_when_logged("CNI server listening");
        self.cluster.lab.run(&program).unwrap();
        until("the plugin is installed", || self.path(node, "/opt/cni/bin/ovn-k8s-cni-overlay").exists().then_some(()));
    }

    /// Starts all agents.
    pub(crate) fn agents(&self, more: &[&str]) {
        for node in 1..=self.cluster.lab.record().spec.nodes {
            self.agent(node, more);
        }
    }

    /// Creates a Pod; returns its UID.
    pub(crate) fn pod(&self, name: &str, node: u32) -> String {
        self.cluster.apply_all(&[pod("default", name, &format!("n{node}"))]);
        self.uid(name)
    }

    pub(crate) fn uid(&self, name: &str) -> String {
        self.cluster.get(&["pod", name])["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Deletes a Pod without a grace period.
    pub(crate) fn delete_pod(&self, name: &str) {
        self.cluster.lab.kubectl(&["delete", "pod", name, "--grace-period=0", "--force", "--wait=true"]).unwrap();
    }

    /// Creates a Pod and a sandbox for it.
    pub(crate) fn sandbox(&self, name: &str, node: u32) -> Sandbox {
        let uid = self.pod(name, node);
        Sandbox::create(self, node, &format!("sandbox-of-{name}"), name, &uid)
    }

    /// The logical names of pod ports on a node's br-int.
    pub(crate) fn ports(&self, node: u32) -> Vec<String> {
        let words = ["ovs-vsctl", "--timeout=30", "--bare", "--columns=external_ids", "find", "Interface"];
        let text = self.machine(node).run(&words).unwrap();
        let ids = text.split_whitespace().filter_map(|pair| pair.strip_prefix("iface-id="));
        let mut ids: Vec<String> = ids.map(str::to_owned).filter(|id| id.contains('_')).collect();
        ids.sort();
        ids
    }

    /// The host-side interfaces of pods.
    pub(crate) fn ends(&self, node: u32) -> Vec<String> {
        let text = self.machine(node).run(&["ip", "-o", "link", "show", "type", "veth"]).unwrap();
        let names = text.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
        names.filter(|name| name.starts_with("pod")).map(str::to_owned).collect()
    }

    /// Asserts that a node has no pod ports and interfaces.
    pub(crate) fn assert_empty(&self, node: u32) {
        assert_eq!((self.ports(node), self.ends(node)), (Vec::new(), Vec::new()), "ports or interfaces are left");
    }

    /// A metric of an agent.
    pub(crate) fn metric(&self, node: u32, name: &str) -> f64 {
        let address = METRICS.parse().unwrap();
        let mut stream = self.machine(node).connect(address, Duration::from_secs(10)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    /// An agent's resident memory in KiB.
    pub(crate) fn memory(&self, node: u32) -> u64 {
        let name = format!("agent-n{node}");
        let record = self.cluster.lab.record();
        let pid = record.components.iter().find(|one| one.name == name).unwrap().process.pid;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// The CNI network configuration, with more fields.
pub(crate) fn configuration(version: &str, more: &Value) -> String {
    let mut network = json!({"cniVersion": version, "name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"});
    for (key, value) in more.as_object().unwrap() {
        network[key] = value.clone();
    }
    network.to_string()
}
