//! A lab with ovnkube into which faults are injected, whether this process or a keeper owns it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::central::Database;
use crate::directories::Directories;
use crate::error::{Error, Result};
use crate::fault;
use crate::inspect;
use crate::keeper;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::record::Record;
use crate::underlay::CONTROL;

const OVNKUBE_NAMESPACE: &str = "ovn-kubernetes";
/// Nodes with this label run a controller.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// How long a component may take to work again. Generous: it only ends what would hang forever.
const LIMIT: Duration = Duration::from_secs(180);

/// Restarts a component of the lab.
type Restart<'a> = Box<dyn Fn(&str) -> Result<()> + 'a>;

/// A lab with ovnkube.
pub struct Testbed<'a> {
    record: Record,
    restart: Restart<'a>,
}

impl std::fmt::Debug for Testbed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Testbed").field("lab", &self.record.name).finish_non_exhaustive()
    }
}

impl<'a> Testbed<'a> {
    /// A lab of this process.
    pub fn of(lab: &'a Lab) -> Self {
        Self { record: lab.record(), restart: Box::new(|component| lab.restart(component)) }
    }

    /// A lab that `lab up` started.
    pub(crate) fn kept(directories: &'a Directories, record: Record) -> Self {
        let name = record.name.clone();
        Self { record, restart: Box::new(move |component| keeper::restart(directories, &name, component)) }
    }

    /// The record at the start; see [`Testbed::kill`].
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// A handle to run commands on a machine.
    pub fn machine(&self, name: &str) -> Result<Machine> {
        inspect::machine(&self.record, name)
    }

    /// `n1`, `n2`, …
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.record.spec.nodes).map(crate::underlay::node_name).collect()
    }

    /// Restarts a component; returns when it is ready.
    pub fn restart(&self, component: &str) -> Result<()> {
        (self.restart)(component)
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub fn kill(&self, component: &str) -> Result<()> {
        // Loaded again: components may have been restarted since.
        let record = Record::load(&Directories::from_environment()?, &self.record.name)?;
        fault::kill(&record, component).map(|_| ())
    }

    /// Runs kubectl as administrator and returns its output.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.machine(CONTROL)?.run_within(LIMIT, &[&["kubectl"], args].concat())
    }

    /// Runs `kubectl apply` with a manifest.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        self.machine(CONTROL)?.run_with_input(&["kubectl", "apply", "-f", "-"], manifest).map(|_| ())
    }

    /// Runs `kubectl get -o json`.
    pub fn get(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get", "-o", "json"], args].concat())?;
        serde_json::from_str(&text).map_err(|error| Error::Invalid(format!("kubectl gave no JSON: {error}")))
    }

    /// The component that is the raft leader of a database.
    pub fn raft_leader(&self, database: Database) -> Result<String> {
        inspect::raft_leader(&self.record, database)
    }

    /// Polls until `condition` is true; `what` is for the error message.
    pub fn until(&self, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
        crate::poll(LIMIT, || condition().then_some(()).ok_or(()))
            .map_err(|()| Error::Invalid(format!("timeout after {} s, waiting until {what}", LIMIT.as_secs())))
    }

    /// The pid (on its node) of the process whose command line starts with `command`, ignoring the program's directory.
    pub fn process(&self, node: &str, command: &str) -> Option<u32> {
        let script = r#"
            for p in /proc/[0-9]*; do
                words=$(tr '\0' ' ' < $p/cmdline 2>/dev/null)
                program=${words%% *}
                case "${program##*/} ${words#* }" in "$1"*) echo ${p#/proc/}; exit;; esac
            done"#;
        self.machine(node).ok()?.run(&["sh", "-c", script, "find", command]).ok()?.trim().parse().ok()
    }

    /// Kills a process on a node and waits until it has been restarted.
    pub(crate) fn kill_process(&self, node: &str, command: &str) -> Result<()> {
        let missing = || Error::Invalid(format!("{command:?} is not running on {node}; cannot kill it"));
        let before = self.process(node, command).ok_or_else(missing)?;
        self.machine(node)?.run(&["kill", "-9", &before.to_string()])?;
        self.until(&format!("{command:?} runs again on {node}"), || {
            self.process(node, command).is_some_and(|now| now != before)
        })
    }

    /// Whether `/readyz` at an address of a node returns 200.
    pub(crate) fn is_ready(&self, node: &str, address: SocketAddr) -> bool {
        let limit = Duration::from_secs(2);
        let ask = || -> Result<String> {
            let mut stream = self.machine(node)?.connect(address, limit)?;
            let context = || Error::io(format!("cannot ask {address} on {node}"));
            stream.set_read_timeout(Some(limit)).map_err(context())?;
            stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").map_err(context())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map_err(context())?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.lines().next().is_some_and(|status| status.contains(" 200 ")))
    }

    /// Waits until all ovnkube pods are ready.
    pub(crate) fn await_network(&self) -> Result<()> {
        for set in ["ovnkube-master", "ovnkube"] {
            let set = format!("daemonset/{set}");
            self.kubectl(&["-n", OVNKUBE_NAMESPACE, "rollout", "status", &set, "--timeout=170s"])?;
        }
        Ok(())
    }

    /// Waits until a node's ovn-controller is connected to the southbound database.
    pub(crate) fn await_ovn_controller(&self, node: &str) -> Result<()> {
        let machine = self.machine(node)?;
        self.until(&format!("ovn-controller on {node} is connected"), || {
            let args = ["ovn-appctl", "--timeout=5", "-t", "ovn-controller", "connection-status"];
            machine.run(&args).is_ok_and(|status| status.trim() == "connected")
        })
    }

    /// Waits until a change of the northbound database has reached every node. ovn-nbctl gives up at the first member
    /// that rejects it, so it is retried.
    pub(crate) fn await_nodes_synced(&self) -> Result<()> {
        let control = self.machine(CONTROL)?;
        let args = ["ovn-nbctl", "--timeout=30", "--wait=hv", "sync"];
        self.until("every node has applied a change of the northbound database", || control.run(&args).is_ok())
    }

    /// The node of the leading controller, from the Lease.
    pub fn leading_node(&self) -> Result<String> {
        let lease = self.get(&["-n", OVNKUBE_NAMESPACE, "lease", "ovn-kubernetes-master"])?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        let pods = self.get(&["-n", OVNKUBE_NAMESPACE, "pods", "-l", "app=ovnkube-master"])?;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let leads = |pod: &&Value| pod["metadata"]["name"].as_str().is_some_and(|name| holder.contains(name));
        let node = pods.iter().find(leads).and_then(|pod| pod["spec"]["nodeName"].as_str());
        node.map(str::to_owned).ok_or_else(|| {
            Error::Invalid(format!(
                "the Lease {OVNKUBE_NAMESPACE}/ovn-kubernetes-master is held by {holder:?}: no pod of ovnkube-master has that name"
            ))
        })
    }

    /// Prepares the cluster for every scenario: two controllers, and kubelets that restart a killed container without
    /// backoff. Returns the node that got the second controller, for `Testbed::restore`.
    pub fn prepare(&self) -> Result<Option<String>> {
        let mut labelled = None;
        if let Some(second) = self.nodes().into_iter().nth(1) {
            let node = self.get(&["node", &second])?;
            if node["metadata"]["labels"][CONTROL_PLANE].is_null() {
                self.kubectl(&["label", "node", &second, &format!("{CONTROL_PLANE}=")])?;
                labelled = Some(second);
            }
        }
        for node in self.nodes() {
            let script = "f=/etc/kubernetes/kubelet.yaml; grep -q crashLoopBackOff $f && exit 3; \
                          echo 'crashLoopBackOff: {maxContainerRestartPeriod: 1s}' >> $f";
            if self.machine(&node)?.output(&["sh", "-c", script])?.status.success() {
                self.kill(&format!("{node}-kubelet"))?;
                self.restart(&format!("{node}-kubelet"))?;
            }
        }
        self.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=170s"])?;
        self.until("the controllers' DaemonSet has two pods", || {
            let set = self.get(&["-n", OVNKUBE_NAMESPACE, "daemonset", "ovnkube-master"]).unwrap_or_default();
            set["status"]["desiredNumberScheduled"].as_u64() >= Some(self.nodes().len().min(2) as u64)
        })?;
        self.await_network()?;
        Ok(labelled)
    }

    /// Removes the second controller. (Kubelets keep the short backoff until they are reconfigured.)
    pub(crate) fn restore(&self, labelled: Option<&str>) -> Result<()> {
        let Some(node) = labelled else { return Ok(()) };
        self.kubectl(&["label", "node", node, &format!("{CONTROL_PLANE}-")])?;
        self.await_network()
    }

    /// Restarts the pods of a DaemonSet, as an upgrade does.
    pub fn replace_network(&self, set: &str) -> Result<()> {
        let set = format!("daemonset/{set}");
        self.kubectl(&["-n", OVNKUBE_NAMESPACE, "rollout", "restart", &set])?;
        self.kubectl(&["-n", OVNKUBE_NAMESPACE, "rollout", "status", &set, "--timeout=170s"]).map(|_| ())
    }
}
