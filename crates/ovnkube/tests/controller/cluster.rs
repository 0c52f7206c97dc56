//! A cluster in the lab with the controller under test: real API server, databases, northd and ovn-controllers. Nodes and
//! pods are only objects; the tests do what a node agent would do.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use lab::{Family, Kubernetes, Lab, LabSpec, Ovn, Pod, PodInterface, Program, Suite};
use netmodel::{InterfaceAddress, Mac};
use serde_json::{Value, json};

/// Limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// A Lease that survives an API server that hangs for some seconds.
pub(crate) const LONG_LEASE: [&str; 4] = ["--ha-election-lease-duration", "60", "--ha-election-renew-deadline", "50"];
/// A Lease whose expiry a test can await.
pub(crate) const SHORT_LEASE: [&str; 6] =
    ["--ha-election-lease-duration", "3", "--ha-election-renew-deadline", "2", "--ha-election-retry-period", "0.5"];

pub(crate) struct Cluster {
    pub(crate) lab: Lab,
    pub(crate) arguments: Vec<String>,
}

pub(crate) struct ClusterSpec {
    pub(crate) purpose: &'static str,
    pub(crate) nodes: u32,
    pub(crate) family: Family,
    pub(crate) ovn: Ovn,
    pub(crate) arguments: Vec<String>,
    /// The Debian suite of the node image, if not the default.
    pub(crate) suite: Option<Suite>,
}

impl ClusterSpec {
    pub(crate) fn new(purpose: &'static str) -> Self {
        let ovn = Ovn { databases: lab::Databases::Standalone, ..Ovn::default() };
        Self { purpose, nodes: 0, family: Family::V4, ovn, arguments: Vec::new(), suite: None }
    }

    pub(crate) fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self
    }

    pub(crate) fn raft(mut self) -> Self {
        self.ovn.databases = lab::Databases::Raft;
        self
    }

    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }

    pub(crate) fn start(self) -> Cluster {
        let mut spec = LabSpec::for_test(self.purpose).unwrap().nodes(self.nodes).family(self.family).ovn(self.ovn);
        spec.suite = self.suite.unwrap_or(spec.suite);
        let lab = Lab::start(spec.kubernetes(Kubernetes::default())).unwrap();
        Cluster { lab, arguments: self.arguments }
    }
}

/// Polls until `look` returns a value; panics after [`TIMEOUT`].
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(TIMEOUT, what, look)
}

/// Like [`until`], with a shorter limit, where a later fallback would hide a failure.
pub(crate) fn until_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    lab::poll(limit, || look().ok_or(())).unwrap_or_else(|()| panic!("{what}: not within {limit:?}"))
}

impl Cluster {
    /// Starts a controller; it may not lead yet when this returns.
    pub(crate) fn controller(&self, name: &str) {
        self.controller_with(name, &[]);
    }

    pub(crate) fn controller_with(&self, name: &str, more: &[&str]) {
        let northbound = self.lab.record().endpoints.northbound.unwrap();
        self.run_controller("control", name, &northbound, more);
    }

    /// Starts a controller on another machine: two that run northd cannot share one.
    pub(crate) fn controller_on(&self, machine: &str, name: &str, more: &[&str]) {
        let northbound = self.lab.record().endpoints.northbound.unwrap();
        self.run_controller(machine, name, &northbound, more);
    }

    /// Starts a controller that connects to the northbound database at another remote.
    pub(crate) fn controller_at(&self, name: &str, northbound: &str) {
        self.run_controller("control", name, northbound, &[]);
    }

    fn run_controller(&self, machine: &str, name: &str, northbound: &str, more: &[&str]) {
        let southbound = self.lab.record().endpoints.southbound.unwrap();
        let program = Program::new(name, PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
            .on(machine)
            .environment("OVNKUBE_METRICS_BIND_ADDRESS", "off")
            // The lab's service range; an argument overrides it.
            .environment("OVNKUBE_KUBERNETES_SERVICE_CIDRS", "10.96.0.0/16")
            .arguments([
                "controller",
                "--identity",
                name,
                "--log-level",
                "info,ovsdb=debug,controller::leader_proxy=debug",
            ])
            .arguments(["--nb-address", northbound])
            .arguments(["--sb-address", &southbound])
            .arguments(self.arguments.iter().cloned())
            .arguments(more.iter().copied());
        self.lab.run(&program).unwrap();
    }

    /// Kills a component and starts it again; returns when the API answers.
    pub(crate) fn interrupt(&self, component: &str) {
        self.lab.kill(component).unwrap();
        self.lab.restart(component).unwrap();
        until("the API answers", || self.lab.kubectl(&["get", "--raw=/readyz"]).ok());
    }

    pub(crate) fn wait_leader(&self, name: &str) {
        until(&format!("{name} leads"), || self.lab.log(name).unwrap().contains("\"started leading\"").then_some(()));
    }

    pub(crate) fn get(&self, what: &[&str]) -> Value {
        let mut arguments = vec!["get", "-o", "json"];
        arguments.extend(what);
        serde_json::from_str(&self.lab.kubectl(&arguments).unwrap()).unwrap()
    }

    /// A Node with its agent's annotations: chassis, gateway, addresses. The chassis is the lab's node `n<number>`.
    pub(crate) fn add_node(&self, number: u32) {
        self.apply(&node(&format!("n{number}")));
        self.annotate_node(&format!("n{number}"), number, "shared");
    }

    pub(crate) fn annotate_node(&self, name: &str, number: u32, mode: &str) {
        let family = self.lab.record().spec.family;
        let mut addresses: Vec<String> = Vec::new();
        let mut hops: Vec<String> = Vec::new();
        if family.has_v4() {
            addresses.push(format!("10.99.0.{}/24", 220 + number));
            hops.push("10.99.0.254".into());
        }
        if family.has_v6() {
            addresses.push(format!("fd99::{:x}/64", 220 + number));
            hops.push("fd99::fe".into());
        }
        let gateway = json!({"default": {"mode": mode, "bridge-id": "br-ex", "interface-id": format!("br-ex_{name}"),
            "mac-address": format!("0a:58:0a:63:00:{:02x}", 220 + number), "ip-addresses": addresses, "next-hops": hops,
            "node-port-enable": "true", "vlan-id": "0"}});
        self.annotate(
            "node",
            name,
            &[
                ("k8s.ovn.org/node-chassis-id", &format!("n{number}")),
                ("k8s.ovn.org/l3-gateway-config", &gateway.to_string()),
                ("k8s.ovn.org/host-cidrs", &json!(addresses).to_string()),
            ],
        );
    }

    pub(crate) fn annotate(&self, kind: &str, name: &str, annotations: &[(&str, &str)]) {
        let mut arguments: Vec<String> = ["annotate", "--overwrite", kind, name].map(String::from).into();
        arguments.extend(annotations.iter().map(|(key, value)| format!("{key}={value}")));
        self.lab.kubectl(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    }

    /// Installs the CRDs of AdminNetworkPolicies.
    pub(crate) fn install_admin_policies(&self) {
        for plural in ["adminnetworkpolicies", "baselineadminnetworkpolicies"] {
            let file = format!("{}/../../deploy/crds/{plural}.yaml", env!("CARGO_MANIFEST_DIR"));
            self.lab.apply(&std::fs::read_to_string(file).unwrap()).unwrap();
            let name = format!("crd/{plural}.policy.networking.k8s.io");
            // It fails at once for a type that has no conditions yet.
            let wait = ["wait", "--for=condition=Established", "--timeout=60s", &name];
            until(&format!("{plural} are established"), || self.lab.kubectl(&wait).ok());
            until(&format!("{plural} are served"), || self.lab.kubectl(&["get", plural]).ok());
        }
    }

    pub(crate) fn apply(&self, manifest: &Value) {
        self.lab.apply(&manifest.to_string()).unwrap();
    }

    /// Applies a list; retries while a namespace's service account does not exist yet.
    pub(crate) fn apply_all(&self, items: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        until("the objects are applied", || self.lab.apply(&list).ok());
    }

    /// Waits until all these pods have their network annotation.
    pub(crate) fn networks_of(&self, namespace: &str, names: &[String]) -> Vec<Network> {
        until(&format!("pods {names:?} of {namespace} have their annotations"), || {
            let pods = self.get(&["pods", "-n", namespace]);
            let network = |name: &String| {
                let pod = pods["items"].as_array()?.iter().find(|pod| pod["metadata"]["name"] == name.as_str())?;
                let text = pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"].as_str()?;
                Some(Network::read(text, pod["metadata"]["uid"].as_str()?))
            };
            names.iter().map(network).collect()
        })
    }

    /// Waits for a pod's network annotation.
    pub(crate) fn network_of(&self, namespace: &str, name: &str) -> Network {
        until(&format!("pod {namespace}/{name} has its annotation"), || {
            let pod = self.get(&["pod", "-n", namespace, name]);
            let text = pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"].as_str()?.to_owned();
            Some(Network::read(&text, pod["metadata"]["uid"].as_str()?))
        })
    }

    /// Connects a pod as its node agent would; returns when its port is up.
    pub(crate) fn bind(&self, node: u32, namespace: &str, name: &str) -> Pod {
        let pod = self.plug(node, namespace, name);
        self.wait_up(namespace, name);
        pod
    }

    /// Connects a pod to the switch of its node.
    pub(crate) fn plug(&self, node: u32, namespace: &str, name: &str) -> Pod {
        let network = self.network_of(namespace, name);
        let port = format!("{namespace}_{name}");
        let wiring = PodInterface {
            port: &port,
            mac: network.mac,
            addresses: &network.addresses,
            gateways: &network.gateways,
            mtu: 1400,
            version: Some(&network.uid),
        };
        Pod::create(self.lab.node(node).unwrap(), name, &wiring).unwrap()
    }

    /// Waits until the node has bound a pod's port.
    pub(crate) fn wait_up(&self, namespace: &str, name: &str) {
        let port = format!("{namespace}_{name}");
        self.lab.nbctl(&["wait-until", "Logical_Switch_Port", &port, "up=true"]).unwrap();
    }

    /// `ovn-nbctl show`.
    pub(crate) fn dump(&self) -> String {
        self.lab.nbctl(&["--no-leader-only", "show"]).unwrap()
    }

    /// The sequence value in the database: the writer, and how many transactions it has committed.
    pub(crate) fn sequence(&self) -> (String, u64) {
        let ids = self.lab.nbctl(&["get", "NB_Global", ".", "external_ids:k8s.ovn.org/controller-sequence"]).unwrap();
        let text = ids.trim().trim_matches('"').to_owned();
        let (writer, number) = text.rsplit_once(':').unwrap();
        (writer.to_owned(), number.parse().unwrap())
    }
}

/// A pod's network annotation.
pub(crate) struct Network {
    pub(crate) mac: Mac,
    pub(crate) addresses: Vec<InterfaceAddress>,
    pub(crate) gateways: Vec<IpAddr>,
    pub(crate) uid: String,
}

impl Network {
    fn read(text: &str, uid: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap();
        let list = |key: &str| -> Vec<String> {
            value["default"][key].as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
        };
        Self {
            mac: value["default"]["mac_address"].as_str().unwrap().parse().unwrap(),
            addresses: list("ip_addresses").iter().map(|text| text.parse().unwrap()).collect(),
            gateways: list("gateway_ips").iter().map(|text| text.parse().unwrap()).collect(),
            uid: uid.to_owned(),
        }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.addresses[0].address()
    }
}

pub(crate) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

pub(crate) fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 0}})
}
