//! Readiness by evidence: a hung component between the southbound database and the node's flows is named, and a mere
//! restart is not reported.

use std::time::Duration;

use lab::Family;
use serde_json::{Value, json};

use crate::agent::{condition, node, wait_condition};
use crate::cluster::{self, until};
use crate::sandbox::request;
use crate::site::Site;

fn appctl(site: &Site, command: &str) {
    site.machine(1).run(&["ovn-appctl", "-t", "ovn-controller", command]).unwrap();
}

/// Waits until CNI STATUS names a cause; used where the API may be unreachable.
fn wait_status_error(site: &Site, text: &str) {
    until(&format!("STATUS reports {text:?}"), || {
        let error = request(site, 1, "STATUS", &json!({})).err()?;
        error.to_string().contains(text).then_some(())
    });
}

fn heartbeat(site: &Site) -> String {
    condition(&node(site, 1)).unwrap()["lastHeartbeatTime"].as_str().unwrap().to_owned()
}

fn flows(site: &Site) -> u64 {
    let text = site.machine(1).run(&["ovs-ofctl", "dump-aggregate", "br-int"]).unwrap();
    text.trim().rsplit_once('=').unwrap().1.parse().unwrap()
}

fn deletions(site: &Site) -> f64 {
    site.metric(1, "ovnkube_node_flow_deletions_total")
}

#[test]
fn a_hung_component_is_named_and_deleted_flows_are_restored() {
    let site = Site::start("evidence", 1, Family::V4);
    let lab = &site.cluster.lab;
    // The Node of an agent that died while ready: its heartbeat is not renewed.
    site.cluster.apply(&cluster::node("silent"));
    let ready = json!({"status": {"conditions": [{"type": "k8s.ovn.org/NodeNetworkReady", "status": "True", "reason": "Ready",
        "message": "x", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    lab.kubectl(&["patch", "node", "silent", "--subresource=status", "-p", &ready.to_string()]).unwrap();

    site.agents(&["--ofctrl-wait-before-clear", "1000"]);
    wait_condition(&site, 1, "True", "can be connected");
    let first = heartbeat(&site);

    // ovn-controller is connected and running but applies nothing: only nb_cfg shows it.
    appctl(&site, "debug/pause");
    // Releasing an address raises nb_cfg at once.
    site.pod("unseen", 1);
    site.cluster.network_of("default", "unseen");
    site.delete_pod("unseen");
    wait_condition(&site, 1, "False", "has not applied nb_cfg");
    site.cluster.event_in("default", "n1", "NodeNetworkNotReady", &["it last applied a change"]);
    appctl(&site, "debug/resume");
    wait_condition(&site, 1, "True", "can be connected");

    // A hung southbound server with open connections.
    let paused = lab.pause("sb").unwrap();
    wait_condition(&site, 1, "False", "is not connected to the southbound database");
    paused.resume().unwrap();
    wait_condition(&site, 1, "True", "can be connected");

    let paused = lab.pause("n1-ovn-controller").unwrap();
    wait_condition(&site, 1, "False", "is hung");
    paused.resume().unwrap();
    wait_condition(&site, 1, "True", "can be connected");

    // Without ovs-vswitchd the lab's node has no network: STATUS reports it, the API is unreachable.
    let paused = lab.pause("n1-ovs-vswitchd").unwrap();
    wait_status_error(&site, "ovs-vswitchd is hung");
    paused.resume().unwrap();
    until("the agent is ready", || request(&site, 1, "STATUS", &json!({})).ok());

    // Flows that ovn-controller itself deletes are not reported: for deleted pods, and in its own restart.
    let monitors_started =
        || lab.log("agent-n1").unwrap().matches("watching for flows that other clients delete").count();
    until("flows are monitored", || (monitors_started() > 0).then_some(()));
    let before = monitors_started();
    for round in 0..3 {
        let sandbox = site.sandbox(&format!("pod-{round}"), 1);
        sandbox.add();
        sandbox.delete();
    }
    lab.kill("n1-ovn-controller").unwrap();
    lab.restart("n1-ovn-controller").unwrap();
    until("flows are monitored again", || (monitors_started() > before).then_some(()));
    let sandbox = site.sandbox("last", 1);
    sandbox.add();
    assert_eq!(deletions(&site), 0.0);

    let all = flows(&site);
    assert!(all > 100, "{all} flows");
    site.machine(1).run(&["ovs-ofctl", "del-flows", "br-int"]).unwrap();
    until("the flows are restored", || (flows(&site) >= all).then_some(()));
    until("the deletion is counted", || (deletions(&site) > 0.0).then_some(()));
    site.cluster.event_in("default", "n1", "IntegrationFlowsDeleted", &["ovs-ofctl"]);
    until("the agent is ready", || request(&site, 1, "STATUS", &json!({})).ok());

    // While no agent runs: the next agent finds almost no flows.
    lab.kill("agent-n1").unwrap();
    site.machine(1).run(&["ovs-ofctl", "del-flows", "br-int"]).unwrap();
    lab.restart("agent-n1").unwrap();
    until("the flows are restored", || (flows(&site) >= all).then_some(()));
    until("the agent is ready", || request(&site, 1, "STATUS", &json!({})).ok());

    until("the heartbeat was renewed", || (heartbeat(&site) != first).then_some(()));
    let silent = || condition(&site.cluster.get(&["node", "silent"])).unwrap();
    let unknown = || (silent()["status"] == "Unknown").then_some(());
    let limit = std::time::Instant::now() + Duration::from_secs(120);
    while unknown().is_none() && std::time::Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(200));
    }
    let silent: Value = silent();
    assert_eq!((&silent["status"], &silent["reason"]), (&json!("Unknown"), &json!("NodeAgentSilent")), "{silent}");
    assert!(silent["message"].as_str().unwrap().contains("since 2026-01-01T00:00:00Z"), "{silent}");
    assert_eq!(silent["lastHeartbeatTime"], "2026-01-01T00:00:00Z");
}

/// A southbound member hangs with open connections: the node connects to another member, and an ADD succeeds before the
/// runtime's timeout.
#[test]
fn a_hung_southbound_member_is_left_and_a_partitioned_node_is_reported() {
    let site = Site::start_raft("evidence-raft", 1);
    let lab = &site.cluster.lab;
    site.agents(&["--cni-add-timeout", "60"]);
    wait_condition(&site, 1, "True", "can be connected");
    let member = until("ovn-controller is connected over the network", || {
        let text = site.machine(1).run(&["ss", "-Htn", "state", "established", "dport", "=", ":6642"]).ok()?;
        let peer = text.split_whitespace().find(|word| word.ends_with(":6642"))?;
        peer.strip_suffix(":6642")?.rsplit_once('.')?.1.parse::<u32>().ok()?.checked_sub(1)
    });
    let paused = lab.pause(&format!("sb-{member}")).unwrap();
    let sandbox = site.sandbox("while-hung", 1);
    sandbox.add();
    wait_condition(&site, 1, "True", "can be connected");
    paused.resume().unwrap();

    let cuts: Vec<_> = (1..=3).map(|member| lab.partition("n1", &format!("db-{member}")).unwrap()).collect();
    wait_condition(&site, 1, "False", "is not connected to the southbound database");
    for cut in cuts {
        cut.heal().unwrap();
    }
    wait_condition(&site, 1, "True", "can be connected");
}
