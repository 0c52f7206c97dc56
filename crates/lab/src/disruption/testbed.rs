//! The cluster that faults are done to: its parts by name, whoever owns the lab.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::central::Database;
use crate::error::{Error, Result};
use crate::fault;
use crate::keeper;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::place::Place;
use crate::record::Record;
use crate::underlay::CONTROL;
use crate::view;

/// The namespace of our network's pods.
const OURS: &str = "ovn-kubernetes";
/// The label of nodes that run a controller.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// How long a part may take until it works again. Generous: it only ends what would hang for ever.
const LIMIT: Duration = Duration::from_secs(180);
/// Where no event tells that a part works again, it is asked so often.
const PACE: Duration = Duration::from_millis(200);

/// Starts a component of the lab again.
type Restart<'a> = Box<dyn Fn(&str) -> Result<()> + 'a>;

/// A lab with our network.
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
    pub(crate) fn kept(place: &'a Place, record: Record) -> Self {
        let name = record.name.clone();
        Self { record, restart: Box::new(move |component| keeper::restart(place, &name, component)) }
    }

    /// The lab's record as of the beginning.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// A machine of the lab.
    pub fn machine(&self, name: &str) -> Result<Machine> {
        view::machine(&self.record, name)
    }

    /// The names of the nodes.
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.record.spec.nodes).map(crate::underlay::node_name).collect()
    }

    /// Starts a component of the lab again; returns when it does its work.
    pub fn restart(&self, component: &str) -> Result<()> {
        (self.restart)(component)
    }

    /// Kills a component of the lab.
    pub fn kill(&self, component: &str) -> Result<()> {
        // The record of the beginning does not know processes that were started since.
        let record = Record::load(&Place::from_environment()?, &self.record.name)?;
        fault::kill(&record, component).map(|_| ())
    }

    /// Runs kubectl as administrator.
    pub fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.machine(CONTROL)?.run_within(LIMIT, &[&["kubectl"], words].concat())
    }

    /// Applies a manifest.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        self.machine(CONTROL)?.run_with_input(&["kubectl", "apply", "-f", "-"], manifest).map(|_| ())
    }

    /// An object.
    pub fn get(&self, words: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get", "-o", "json"], words].concat())?;
        serde_json::from_str(&text).map_err(|error| Error::Invalid(format!("kubectl gave no JSON: {error}")))
    }

    /// The member that leads a database.
    pub fn raft_leader(&self, database: Database) -> Result<String> {
        view::raft_leader(&self.record, database)
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while !is_so() {
            if Instant::now() >= deadline {
                return Err(Error::Invalid(format!("{what} did not happen within {} s", LIMIT.as_secs())));
            }
            std::thread::sleep(PACE);
        }
        Ok(())
    }

    /// The process on a node whose command line begins with some words; the program's folder does not matter.
    pub fn process(&self, node: &str, command: &str) -> Option<u32> {
        let script = r#"
            for p in /proc/[0-9]*; do
                words=$(tr '\0' ' ' < $p/cmdline 2>/dev/null)
                program=${words%% *}
                case "${program##*/} ${words#* }" in "$1"*) echo ${p#/proc/}; exit;; esac
            done"#;
        self.machine(node).ok()?.run(&["sh", "-c", script, "find", command]).ok()?.trim().parse().ok()
    }

    /// Kills a process on a node and waits until another has come in its place.
    pub fn kill_process(&self, node: &str, command: &str) -> Result<()> {
        let missing = || Error::Invalid(format!("{command:?} does not run on {node}; it cannot be killed"));
        let before = self.process(node, command).ok_or_else(missing)?;
        self.machine(node)?.run(&["kill", "-9", &before.to_string()])?;
        self.until(&format!("{command:?} runs again on {node}"), || {
            self.process(node, command).is_some_and(|now| now != before)
        })
    }

    /// Whether a role on a node says that it is ready.
    pub fn is_ready(&self, node: &str, address: SocketAddr) -> bool {
        let limit = Duration::from_secs(2);
        let ask = || -> Result<String> {
            let mut stream = self.machine(node)?.connect(address, limit)?;
            let doing = || Error::io(format!("cannot ask {address} on {node}"));
            stream.set_read_timeout(Some(limit)).map_err(doing())?;
            stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").map_err(doing())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map_err(doing())?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.lines().next().is_some_and(|status| status.contains(" 200 ")))
    }

    /// Waits until all pods of our network are ready.
    pub fn await_network(&self) -> Result<()> {
        for set in ["ovnkube-master", "ovnkube"] {
            let set = format!("daemonset/{set}");
            self.kubectl(&["-n", OURS, "rollout", "status", &set, "--timeout=170s"])?;
        }
        Ok(())
    }

    /// Waits until a node's ovn-controller is connected.
    pub fn await_ovn_controller(&self, node: &str) -> Result<()> {
        let machine = self.machine(node)?;
        self.until(&format!("ovn-controller on {node} is connected"), || {
            let words = ["ovn-appctl", "--timeout=5", "-t", "ovn-controller", "connection-status"];
            machine.run(&words).is_ok_and(|said| said.trim() == "connected")
        })
    }

    /// Waits until a change of the northbound database has reached every node. ovn-nbctl gives up at the first member that
    /// refuses it, so it is tried again.
    pub fn await_nodes_in_step(&self) -> Result<()> {
        let control = self.machine(CONTROL)?;
        let words = ["ovn-nbctl", "--timeout=30", "--wait=hv", "sync"];
        self.until("every node has applied a change of the northbound database", || control.run(&words).is_ok())
    }

    /// The node of the controller that leads, by its Lease.
    pub fn leading_node(&self) -> Result<String> {
        let lease = self.get(&["-n", OURS, "lease", "ovn-kubernetes-master"])?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        let pods = self.get(&["-n", OURS, "pods", "-l", "app=ovnkube-master"])?;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let leads = |pod: &&Value| pod["metadata"]["name"].as_str().is_some_and(|name| holder.contains(name));
        let node = pods.iter().find(leads).and_then(|pod| pod["spec"]["nodeName"].as_str());
        node.map(str::to_owned).ok_or_else(|| {
            Error::Invalid(format!(
                "the Lease {OURS}/ovn-kubernetes-master is held by {holder:?}: no pod of ovnkube-master has that name"
            ))
        })
    }

    /// Makes the cluster fit for every scenario: two controllers, and kubelets that start a killed container at once, however
    /// often it was killed. Returns the node that it gave a controller, for [`Testbed::restore`].
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
            let set = self.get(&["-n", OURS, "daemonset", "ovnkube-master"]).unwrap_or_default();
            set["status"]["desiredNumberScheduled"].as_u64() >= Some(self.nodes().len().min(2) as u64)
        })?;
        self.await_network()?;
        Ok(labelled)
    }

    /// Takes the second controller away again. (Kubelets keep their short backoff until they are configured anew.)
    pub fn restore(&self, labelled: Option<&str>) -> Result<()> {
        let Some(node) = labelled else { return Ok(()) };
        self.kubectl(&["label", "node", node, &format!("{CONTROL_PLANE}-")])?;
        self.await_network()
    }

    /// Replaces the pods of our network, as an upgrade does.
    pub fn replace_network(&self, set: &str) -> Result<()> {
        let set = format!("daemonset/{set}");
        self.kubectl(&["-n", OURS, "rollout", "restart", &set])?;
        self.kubectl(&["-n", OURS, "rollout", "status", &set, "--timeout=170s"]).map(|_| ())
    }
}
