//! Power cuts of nodes: everything on a node dies at once, and no packet tells the others.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::fault::{self, DropRules};
use crate::node;
use crate::supervisor::Supervisor;
use crate::underlay::node_name;

/// How long processes may take to die.
const LIMIT: Duration = Duration::from_secs(60);

/// Kills everything but the machine's first process and the one that it waits for, which keep the machine's namespaces.
/// Repeated, because a process may start another one meanwhile.
const KILL_ALL: &str = r#"
    for round in 1 2 3; do
        for status in /proc/[0-9]*/status; do
            pid=${status%/status}; pid=${pid#/proc/}
            case $pid in 1|$$|$PPID) continue;; esac
            { read -r _ name < $status; } 2>/dev/null || continue
            if [ "$name" = cat ] && grep -q '^PPid:[[:space:]]*1$' $status 2>/dev/null; then continue; fi
            kill -9 $pid 2>/dev/null
        done
    done
    true"#;

/// A node without power.
#[derive(Debug)]
pub struct PowerCut {
    node: String,
    rules: DropRules,
    /// Components of the lab on that node, in the order of their start.
    components: Vec<String>,
}

impl std::fmt::Display for PowerCut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cut the power of {}", self.node)
    }
}

/// First its packets are dropped, because a process that dies closes its connections; then every process is killed.
pub(crate) fn cut(supervisor: &Supervisor, node: &str) -> Result<PowerCut> {
    if !(1..=supervisor.spec.nodes).any(|number| node_name(number) == node) {
        return Err(Error::Invalid(format!("{node} is not a node of this lab; only nodes can lose their power")));
    }
    let record = supervisor.record_file.read().clone();
    let rules = fault::lose(&record, node, 100)?;
    let running = record.components.iter().filter(|component| component.machine == node && component.ended.is_none());
    let running: Vec<_> = running.cloned().collect();
    supervisor.machine(node)?.run(&["sh", "-c", KILL_ALL])?;
    for component in &running {
        if component.process.open().is_some_and(|process| !process.wait(LIMIT)) {
            return Err(Error::Invalid(format!("{} survived the power cut of {node}", component.name)));
        }
    }
    Ok(PowerCut { node: node.to_owned(), rules, components: running.into_iter().map(|one| one.name).collect() })
}

/// Starts the node's components again, as a boot does. Its pods follow when the kubelet has started them.
pub(crate) fn restore(supervisor: &Supervisor, cut: PowerCut) -> Result<()> {
    let PowerCut { node, rules, components } = cut;
    let machine = supervisor.machine(&node)?;
    // A boot starts with an empty /run. Of containerd's, mounts are left.
    machine.run(&["sh", "-c", "rm -rf /run/openvswitch/* /run/ovn/* /run/ovn-kubernetes/cni/*"])?;
    for component in components {
        supervisor.restart(&component)?;
        if component == format!("{node}-ovs-vswitchd") {
            node::configure_external_bridge(supervisor, &machine)?;
            rules.clone().heal()?;
        }
    }
    Ok(())
}
