//! The scenarios. Each fault function returns when everything works again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::central::Database;
use crate::error::Result;
use crate::interrupt;
use crate::probe::Marks;

use super::testbed::Testbed;
use super::{Pods, RunLength, Scenario};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Where the node agent serves `/readyz`.
const AGENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9103);

/// In the order of the page.
pub(super) const ALL: [Scenario; 13] = [
    Scenario {
        name: "agent-restart",
        title: "node agent killed and started again, 100 times",
        rounds: 10,
        window: seconds(50),
        pods: Pods::Prober,
        fault: agent_restart,
    },
    Scenario {
        name: "upgrade",
        title: "all pods of the network replaced (upgrade)",
        rounds: 3,
        window: seconds(60),
        pods: Pods::Prober,
        fault: upgrade,
    },
    Scenario {
        name: "controller-failover",
        title: "leading controller killed, another leads",
        rounds: 3,
        window: seconds(40),
        pods: Pods::Prober,
        fault: controller_failover,
    },
    Scenario {
        name: "northd-restart",
        title: "ovn-northd killed and started again",
        rounds: 3,
        window: seconds(20),
        pods: Pods::Prober,
        fault: northd_restart,
    },
    Scenario {
        name: "nb-leader-loss",
        title: "leader of the northbound database killed",
        rounds: 3,
        window: seconds(30),
        pods: Pods::Prober,
        fault: nb_leader_loss,
    },
    Scenario {
        name: "sb-leader-loss",
        title: "leader of the southbound database killed",
        rounds: 3,
        window: seconds(30),
        pods: Pods::Prober,
        fault: sb_leader_loss,
    },
    Scenario {
        name: "ovn-controller-restart",
        title: "ovn-controller killed and started again",
        rounds: 3,
        window: seconds(40),
        pods: Pods::Prober,
        fault: ovn_controller_restart,
    },
    Scenario {
        name: "api-server-away",
        title: "API server away for a minute",
        rounds: 2,
        window: seconds(80),
        pods: Pods::Prober,
        fault: api_server_outage,
    },
    Scenario {
        name: "node-deleted-and-added",
        title: "another node deleted and added",
        rounds: 2,
        window: seconds(60),
        pods: Pods::Prober,
        fault: node_deleted_and_added,
    },
    Scenario {
        name: "endpoint-removal",
        title: "endpoints removed with graceful termination",
        rounds: 3,
        window: seconds(40),
        pods: Pods::NetexecDeployment(6),
        fault: endpoint_removal,
    },
    Scenario {
        name: "policy-changes",
        title: "policies and labels change under load",
        rounds: 3,
        window: seconds(30),
        pods: Pods::Prober,
        fault: policy_changes,
    },
    Scenario {
        name: "rolling-update",
        title: "rolling update of a 20-pod Deployment",
        rounds: 2,
        window: seconds(90),
        pods: Pods::NetexecDeployment(20),
        fault: rolling_update,
    },
    Scenario {
        name: "unrelated-port",
        title: "an unused port added to br-int and removed",
        rounds: 3,
        window: seconds(20),
        pods: Pods::Prober,
        fault: unrelated_port,
    },
];

/// The nodes of the prober's pods.
fn probed_nodes(testbed: &Testbed<'_>) -> Vec<String> {
    testbed.nodes().into_iter().take(2).collect()
}

/// Ten restarts per round.
fn agent_restart(testbed: &Testbed<'_>, marks: &Marks<'_>, length: RunLength) -> Result<()> {
    let (nodes, times) = (probed_nodes(testbed), if length == RunLength::Full { 10 } else { 2 });
    for node in nodes.iter().cycle().take(times) {
        marks.mark(format!("agent of {node}"));
        testbed.kill_process(node, "ovnkube node")?;
        testbed.until(&format!("the agent of {node} is ready"), || testbed.is_ready(node, AGENT))?;
    }
    Ok(())
}

fn upgrade(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    for set in ["ovnkube", "ovnkube-master"] {
        marks.mark(format!("rollout {set}"));
        testbed.replace_network(set)?;
    }
    Ok(())
}

fn controller_failover(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    let leader = testbed.leading_node()?;
    marks.mark(format!("kill on {leader}"));
    testbed.kill_process(&leader, "ovnkube controller")?;
    testbed.until("another controller leads", || testbed.leading_node().is_ok_and(|now| now != leader))?;
    marks.mark("another leads");
    testbed.await_network()
}

fn northd_restart(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    let leader = testbed.leading_node()?;
    marks.mark("kill northd");
    testbed.kill_process(&leader, "ovn-northd")?;
    testbed.await_nodes_synced()
}

fn nb_leader_loss(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    leader_loss(testbed, marks, Database::Northbound)
}

fn sb_leader_loss(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    leader_loss(testbed, marks, Database::Southbound)
}

/// The other members elect a leader and serve all clients; then the killed member returns.
fn leader_loss(testbed: &Testbed<'_>, marks: &Marks<'_>, database: Database) -> Result<()> {
    let leader = testbed.raft_leader(database)?;
    marks.mark(format!("kill {leader}"));
    testbed.kill(&leader)?;
    testbed.await_nodes_synced()?;
    marks.mark(format!("{leader} back"));
    testbed.restart(&leader)
}

fn ovn_controller_restart(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    for node in probed_nodes(testbed) {
        marks.mark(format!("kill on {node}"));
        testbed.kill_process(&node, "ovn-controller ")?;
        testbed.await_ovn_controller(&node)?;
    }
    testbed.await_nodes_synced()
}

fn api_server_outage(testbed: &Testbed<'_>, marks: &Marks<'_>, length: RunLength) -> Result<()> {
    marks.mark("API server gone");
    testbed.kill("kube-apiserver")?;
    // A signal ends the wait early; the API server is restarted nevertheless.
    let _ = interrupt::sleep(seconds(if length == RunLength::Full { 60 } else { 10 }));
    marks.mark("API server back");
    testbed.restart("kube-apiserver")?;
    testbed.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=170s"]).map(|_| ())
}

/// The third node, which has none of the prober's pods.
fn node_deleted_and_added(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    let nodes = testbed.nodes();
    let node = nodes.get(2).ok_or_else(|| {
        crate::error::Error::Invalid("this scenario needs a third node: the prober's pods are on the first two".into())
    })?;
    marks.mark(format!("{node} deleted"));
    testbed.kubectl(&["delete", "node", node])?;
    let kubelet = format!("{node}-kubelet");
    testbed.kill(&kubelet)?;
    testbed.restart(&kubelet)?;
    marks.mark(format!("{node} added"));
    testbed.until(&format!("{node} is Ready again"), || {
        testbed.kubectl(&["wait", "--for=condition=Ready", "node", node, "--timeout=20s"]).is_ok()
    })?;
    testbed.await_network()
}

fn endpoint_removal(testbed: &Testbed<'_>, marks: &Marks<'_>, length: RunLength) -> Result<()> {
    let (few, many) = if length == RunLength::Full { ("2", "6") } else { ("2", "4") };
    let scale = |size: &str| -> Result<()> {
        marks.mark(format!("{size} endpoints"));
        testbed.kubectl(&["-n", "probe", "scale", "deployment/fleet", &format!("--replicas={size}")])?;
        testbed.kubectl(&["-n", "probe", "rollout", "status", "deployment/fleet", "--timeout=170s"])?;
        testbed.until("the terminated pods are gone", || {
            let pods = testbed.get(&["-n", "probe", "pods", "-l", "app=fleet"]).unwrap_or_default();
            pods["items"].as_array().is_some_and(|pods| pods.len().to_string() == size)
        })
    };
    scale(few)?;
    scale(many)
}

/// Traffic is allowed all the time: one policy allows everything, while other policies for the same pods come and go
/// and labels change that no selector uses.
fn policy_changes(testbed: &Testbed<'_>, marks: &Marks<'_>, length: RunLength) -> Result<()> {
    let policy = |name: &str, ingress: &str| {
        testbed.apply(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: probe}}\n\
             spec: {{podSelector: {{matchLabels: {{app: echo}}}}, ingress: {ingress}}}\n"
        ))
    };
    marks.mark("open to all");
    policy("everybody", "[{}]")?;
    for round in 0..if length == RunLength::Full { 10 } else { 3 } {
        marks.mark("policy and labels");
        policy("friends", "[{from: [{podSelector: {matchLabels: {app: friend}}}]}]")?;
        for pod in ["client", "near", "far"] {
            testbed.kubectl(&["-n", "probe", "label", "--overwrite", "pod", pod, &format!("mood=m{round}")])?;
        }
        policy("friends", &format!("[{{ports: [{{port: {}}}]}}]", 9000 + round))?;
        testbed.kubectl(&["-n", "probe", "delete", "networkpolicy", "friends"])?;
    }
    marks.mark("no policy");
    testbed.kubectl(&["-n", "probe", "delete", "networkpolicy", "everybody"]).map(|_| ())
}

fn rolling_update(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    marks.mark("rolling update");
    testbed.kubectl(&["-n", "probe", "rollout", "restart", "deployment/fleet"])?;
    testbed.kubectl(&["-n", "probe", "rollout", "status", "deployment/fleet", "--timeout=170s"])?;
    marks.mark("all new");
    // Old pods terminate after the rollout, and are no longer endpoints.
    testbed.until("the old pods are gone", || {
        let pods = testbed.get(&["-n", "probe", "pods", "-l", "app=fleet"]).unwrap_or_default();
        let ends = |pod: &serde_json::Value| !pod["metadata"]["deletionTimestamp"].is_null();
        pods["items"].as_array().is_some_and(|pods| !pods.iter().any(ends))
    })
}

/// What adding any port costs on this datapath, without ovnkube: the baseline for scenarios in which pods come and go.
fn unrelated_port(testbed: &Testbed<'_>, marks: &Marks<'_>, _: RunLength) -> Result<()> {
    for node in probed_nodes(testbed) {
        let machine = testbed.machine(&node)?;
        marks.mark(format!("port on {node}"));
        let add = ["ovs-vsctl", "--timeout=30", "add-port", "br-int", "unrelated", "--"];
        machine.run(&[&add[..], &["set", "Interface", "unrelated", "type=internal"]].concat())?;
        std::thread::sleep(seconds(2));
        machine.run(&["ovs-vsctl", "--timeout=30", "del-port", "br-int", "unrelated"])?;
        std::thread::sleep(seconds(2));
    }
    Ok(())
}
