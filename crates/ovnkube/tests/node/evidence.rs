//! Readiness rests on evidence: whatever hangs between the southbound database and the flows of this node is named, and
//! nothing that is merely restarted is.

use std::time::Duration;

use lab::Family;
use serde_json::{Value, json};

use crate::agent::{condition, node, says};
use crate::cluster::{self, until};
use crate::sandbox::request;
use crate::site::Site;

fn appctl(site: &Site, command: &str) {
    site.machine(1).run(&["ovn-appctl", "-t", "ovn-controller", command]).unwrap();
}

/// CNI's STATUS names a cause; the API may be out of reach.
fn status_says(site: &Site, text: &str) {
    until(&format!("STATUS says {text:?}"), || {
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
fn whatever_hangs_is_named_and_flows_that_others_delete_come_back() {
    let site = Site::start("evidence", 1, Family::V4);
    let lab = &site.cluster.lab;
    // An agent that died while its node was ready: nobody renews what it said.
    site.cluster.apply(&cluster::node("silent"));
    let ready = json!({"status": {"conditions": [{"type": "k8s.ovn.org/NodeNetworkReady", "status": "True", "reason": "Ready",
        "message": "x", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    lab.kubectl(&["patch", "node", "silent", "--subresource=status", "-p", &ready.to_string()]).unwrap();

    site.agents(&["--ofctrl-wait-before-clear", "1000"]);
    says(&site, 1, "True", "can be wired");
    let first = heartbeat(&site);

    // Connected, its main loop turns, and nothing is applied: only nb_cfg shows it.
    appctl(&site, "debug/pause");
    // An address that is to be free again is asked after by nb_cfg at once.
    site.pod("unseen", 1);
    site.cluster.network_of("default", "unseen");
    site.delete_pod("unseen");
    says(&site, 1, "False", "has not applied nb_cfg");
    site.cluster.event_in("default", "n1", "NodeNetworkNotReady", &["it last applied a change"]);
    appctl(&site, "debug/resume");
    says(&site, 1, "True", "can be wired");

    // A southbound server that hangs, with its connections open.
    let paused = lab.pause("sb").unwrap();
    says(&site, 1, "False", "has lost the southbound database");
    paused.resume().unwrap();
    says(&site, 1, "True", "can be wired");

    let paused = lab.pause("n1-ovn-controller").unwrap();
    says(&site, 1, "False", "is hung");
    paused.resume().unwrap();
    says(&site, 1, "True", "can be wired");

    // Without ovs-vswitchd the lab's node has no network: the runtime is told, the API is not.
    let paused = lab.pause("n1-ovs-vswitchd").unwrap();
    status_says(&site, "ovs-vswitchd is hung");
    paused.resume().unwrap();
    until("the agent is ready", || request(&site, 1, "STATUS", &json!({})).ok());

    // What ovn-controller itself deletes is no news: pods that come and go, and its own restart.
    let watching = || lab.log("agent-n1").unwrap().matches("watching for flows that others delete").count();
    until("flows are watched", || (watching() > 0).then_some(()));
    let before = watching();
    for round in 0..3 {
        let sandbox = site.sandbox(&format!("pod-{round}"), 1);
        sandbox.add();
        sandbox.delete();
    }
    lab.kill("n1-ovn-controller").unwrap();
    lab.restart("n1-ovn-controller").unwrap();
    until("flows are watched again", || (watching() > before).then_some(()));
    let sandbox = site.sandbox("last", 1);
    sandbox.add();
    assert_eq!(deletions(&site), 0.0);

    let all = flows(&site);
    assert!(all > 100, "{all} flows");
    site.machine(1).run(&["ovs-ofctl", "del-flows", "br-int"]).unwrap();
    until("flows are back", || (flows(&site) >= all).then_some(()));
    until("it is counted", || (deletions(&site) > 0.0).then_some(()));
    site.cluster.event_in("default", "n1", "IntegrationFlowsDeleted", &["ovs-ofctl"]);
    until("the agent is ready", || request(&site, 1, "STATUS", &json!({})).ok());

    // The same while nobody watches: the next agent finds hardly a flow.
    lab.kill("agent-n1").unwrap();
    site.machine(1).run(&["ovs-ofctl", "del-flows", "br-int"]).unwrap();
    lab.restart("agent-n1").unwrap();
    until("flows are back", || (flows(&site) >= all).then_some(()));
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

/// A southbound server stands still with all connections open: the node goes to another member, and a pod is wired before the
/// runtime loses patience.
#[test]
fn a_hung_southbound_server_is_left_and_a_node_that_is_cut_off_says_so() {
    let site = Site::start_raft("evidence-raft", 1);
    let lab = &site.cluster.lab;
    site.agents(&["--cni-patience", "60"]);
    says(&site, 1, "True", "can be wired");
    let member = until("ovn-controller is connected over the network", || {
        let text = site.machine(1).run(&["ss", "-Htn", "state", "established", "dport", "=", ":6642"]).ok()?;
        let peer = text.split_whitespace().find(|word| word.ends_with(":6642"))?;
        peer.strip_suffix(":6642")?.rsplit_once('.')?.1.parse::<u32>().ok()?.checked_sub(1)
    });
    let paused = lab.pause(&format!("sb-{member}")).unwrap();
    let sandbox = site.sandbox("while-hung", 1);
    sandbox.add();
    says(&site, 1, "True", "can be wired");
    paused.resume().unwrap();

    let cuts: Vec<_> = (1..=3).map(|member| lab.partition("n1", &format!("db-{member}")).unwrap()).collect();
    says(&site, 1, "False", "has lost the southbound database");
    for cut in cuts {
        cut.heal().unwrap();
    }
    says(&site, 1, "True", "can be wired");
}
