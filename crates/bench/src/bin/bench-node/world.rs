//! The lab: two nodes with Open vSwitch and ovn-controller, the API, our controller, and an agent on each node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::{Databases, Kubernetes, Lab, LabSpec, Machine, Ovn, Program};
use serde_json::{Value, json};

use crate::agent::Agent;

/// Limit of any wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
pub(crate) const NAMESPACE: &str = "bench";
/// A thousand pods on a node.
const NETWORKS: [&str; 4] = ["--cluster-subnets", "10.128.0.0/14/22", "--k8s-service-cidrs", "10.96.0.0/16"];

pub(crate) struct World {
    pub(crate) lab: Lab,
    pods: AtomicUsize,
}

/// A pod that has its annotation, and a network namespace on its node in which nothing is yet.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) node: u32,
    /// The annotation's default network.
    pub(crate) network: Value,
}

impl Sandbox {
    /// The namespace's path on the node.
    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.pod)
    }

    /// The logical port's name.
    pub(crate) fn port(&self) -> String {
        format!("{NAMESPACE}_{}", self.pod)
    }
}

/// The release build beside this program.
fn ovnkube() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("ovnkube");
    if !program.exists() {
        bail!("{} not found: run `make bench-node`, which builds it", program.display());
    }
    Ok(program)
}

/// Polls until there is a value.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Some(found) = look()? {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("{what}: not within {TIMEOUT:?}")
}

impl World {
    pub(crate) fn start() -> Result<Self> {
        let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
        let spec = LabSpec::for_test("bench-node")?.nodes(2).ovn(ovn).kubernetes(Kubernetes::default());
        let world = Self { lab: Lab::start(spec)?, pods: AtomicUsize::new(0) };
        // Nodes without kubelets would be marked unreachable, and their pods evicted.
        for component in ["kube-controller-manager", "kube-scheduler"] {
            world.lab.kill(component)?;
        }
        world.control()?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": NAMESPACE}});
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        for object in [space, account, node("n1"), node("n2")] {
            world.lab.apply(&object.to_string())?;
        }
        for number in 1..=2 {
            world.agent(number)?.await_service()?;
        }
        Ok(world)
    }

    fn control(&self) -> Result<()> {
        let endpoints = self.lab.record().endpoints;
        let northbound = endpoints.northbound.context("the lab has no northbound database")?;
        let southbound = endpoints.southbound.context("the lab has no southbound database")?;
        let controller = Program::new("controller", ovnkube()?)
            .arguments(["controller", "--identity", "bench", "--metrics-bind-address", "off"])
            .arguments(["--nb-address", &northbound, "--sb-address", &southbound])
            .arguments(NETWORKS)
            .ready_when_logged("leading");
        Ok(self.lab.run(&controller)?)
    }

    /// The agent of a node, started if it does not run yet.
    pub(crate) fn agent(&self, number: u32) -> Result<Agent> {
        let (name, node) = (format!("agent-{number}"), format!("n{number}"));
        if self.lab.record().component(&name).is_err() {
            let southbound = self.lab.record().endpoints.southbound.context("the lab has no southbound database")?;
            let agent = Program::new(&name, ovnkube()?)
                .on(&node)
                .arguments(["node", "--node", &node, "--metrics-bind-address", crate::agent::METRICS])
                .arguments(["--sb-address", &southbound])
                .arguments(NETWORKS)
                .ready_when_logged("CNI server listening");
            self.lab.run(&agent)?;
        }
        Ok(Agent { pid: self.lab.record().component(&name)?.process.pid, machine: self.lab.machine(&node)? })
    }

    pub(crate) fn node(&self, number: u32) -> Result<Machine> {
        Ok(self.lab.node(number)?)
    }

    /// Creates pods on a node, each with an empty network namespace; returns once they are annotated.
    pub(crate) fn sandboxes(&self, node: u32, count: usize) -> Result<Vec<Sandbox>> {
        let first = self.pods.fetch_add(count, Ordering::Relaxed);
        let names: Vec<String> = (first..first + count).map(|number| format!("p{number}")).collect();
        let pod = |name: &String| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"nodeName": format!("n{node}"), "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "c", "image": "none"}]}})
        };
        let items: Vec<Value> = names.iter().map(pod).collect();
        self.lab.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())?;
        let batch: String = names.iter().map(|name| format!("netns add {name}\n")).collect();
        self.node(node)?.run_with_input(&["ip", "-batch", "-"], &batch)?;
        let mut annotated = until("pods have their annotations", || {
            let text = self.lab.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "json"])?;
            let pods: Value = serde_json::from_str(&text)?;
            let annotated: BTreeMap<String, (String, Value)> =
                pods["items"].as_array().into_iter().flatten().filter_map(annotated).collect();
            Ok(names.iter().all(|name| annotated.contains_key(name)).then_some(annotated))
        })?;
        self.lab.nbctl(&["--wait=hv", "--timeout=60", "sync"])?;
        let sandboxes = names.into_iter().filter_map(|pod| {
            let (uid, network) = annotated.remove(&pod)?;
            Some(Sandbox { pod, uid, node, network })
        });
        Ok(sandboxes.collect())
    }
}

/// A pod's name, identity and network.
fn annotated(pod: &Value) -> Option<(String, (String, Value))> {
    let text = pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"].as_str()?;
    let network: Value = serde_json::from_str(text).ok()?;
    let (name, uid) = (pod["metadata"]["name"].as_str()?, pod["metadata"]["uid"].as_str()?);
    Some((name.to_owned(), (uid.to_owned(), network["default"].clone())))
}
