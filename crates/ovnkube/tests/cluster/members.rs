//! Clients follow the members of the databases: a control-plane node joins, another one leaves, and no pod is restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lab::{Databases, Family, GatewayMode, Lab, LabSpec, Ovn};
use serde_json::Value;

use crate::common::{product, scale_application};

const LIMIT: Duration = Duration::from_secs(300);
const LABEL: &str = "node-role.kubernetes.io/control-plane";

/// Repeats until there is a result; fails with what was found last.
pub(crate) fn until<T>(what: &str, find: impl FnMut() -> Result<T, String>) -> T {
    lab::poll(LIMIT, find).unwrap_or_else(|last| panic!("{what}: {last}"))
}

pub(crate) fn kubectl(lab: &Lab, words: &[&str]) -> String {
    lab.kubectl(&[&["-n", "ovn-kubernetes"], words].concat()).unwrap().trim().to_owned()
}

pub(crate) fn address(lab: &Lab, node: &str) -> String {
    let path = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    kubectl(lab, &["get", "node", node, "-o", path])
}

/// The pod of a DaemonSet on a node.
pub(crate) fn pod(lab: &Lab, app: &str, node: &str) -> String {
    let field = format!("--field-selector=spec.nodeName={node},status.phase=Running");
    until("the pod", || {
        let names = kubectl(lab, &["get", "pods", "-l", &format!("app={app}"), &field, "-o", "name"]);
        let mut names = names.lines();
        names.next().map(str::to_owned).ok_or_else(|| format!("no pod {app} on {node}"))
    })
}

/// Name and restarts of all pods on these nodes.
fn pods(lab: &Lab, nodes: &[&str]) -> BTreeSet<String> {
    let path = "jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
    let text = kubectl(lab, &["get", "pods", "-o", path]);
    text.lines()
        .filter(|line| nodes.iter().any(|node| line.starts_with(&format!("{node} "))))
        .map(str::to_owned)
        .collect()
}

/// The servers in `ovn-remote` of a node, sorted: the agent changes their order to make ovn-controller reconnect.
pub(crate) fn remote(lab: &Lab, node: &str) -> String {
    let words = ["ovs-vsctl", "--timeout=30", "get", "Open_vSwitch", ".", "external_ids:ovn-remote"];
    let written = lab.machine(node).unwrap().run(&words).unwrap();
    let servers: BTreeSet<&str> = written.trim().trim_matches('"').split(',').collect();
    servers.into_iter().collect::<Vec<_>>().join(",")
}

fn await_remotes(lab: &Lab, members: &[&str]) {
    let mut addresses: Vec<String> = members.iter().map(|node| address(lab, node)).collect();
    addresses.sort();
    let expected: Vec<String> = addresses.iter().map(|address| format!("ssl:{address}:6642")).collect();
    let expected = expected.join(",");
    for node in ["n1", "n2", "n3", "n4"] {
        until("ovn-remote", || {
            let found = remote(lab, node);
            if found == expected { Ok(()) } else { Err(format!("{node} has {found}, not {expected}")) }
        });
    }
}

/// Members of the northbound database as `ovnkube db status` lists them, by host, with whether they lead.
fn status(lab: &Lab, node: &str) -> BTreeMap<String, bool> {
    let script = "ovnkube db status nb -o json || true";
    let text = kubectl(lab, &["exec", &pod(lab, "ovnkube-db", node), "-c", "nbdb", "--", "sh", "-c", script]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let members = report[0]["members"].as_array().unwrap();
    let host = |member: &Value| member["remote"].as_str().unwrap().split(':').nth(1).unwrap().to_owned();
    members.iter().map(|member| (host(member), member["leader"] == true)).collect()
}

/// Clients of the northbound server of a node, as `address:port`, from these hosts.
fn sessions(lab: &Lab, node: &str, hosts: &[String]) -> BTreeSet<String> {
    let words = ["ss", "-Htn", "state", "established", "sport", "=", ":6641"];
    let text = lab.machine(node).unwrap().run(&words).unwrap();
    let peers = text.lines().filter_map(|line| line.split_whitespace().last());
    let peers = peers.map(|peer| peer.replace("[::ffff:", "").replace(']', ""));
    peers.filter(|peer| hosts.iter().any(|host| peer.starts_with(&format!("{host}:")))).collect()
}

#[test]
fn clients_follow_members_that_join_and_leave() {
    let ovn = Ovn { databases: Databases::Pods, ..Ovn::default() };
    let spec = LabSpec::for_test("members").unwrap().nodes(4).control_planes(3).family(Family::V4).ovn(ovn);
    let lab = Lab::start(spec.product(product(GatewayMode::Shared))).unwrap();
    await_remotes(&lab, &["n1", "n2", "n3"]);

    // The one that leaves does not lead: the sessions with the leader must survive.
    let leader = until("a leader", || {
        let status = status(&lab, "n1");
        let leader = status.iter().find(|(_, leads)| **leads).map(|(host, _)| host.clone());
        leader.filter(|_| status.len() == 3).ok_or_else(|| format!("{status:?}"))
    });
    let nodes = ["n1", "n2", "n3"];
    let leading = *nodes.iter().find(|node| address(&lab, node) == leader).unwrap();
    let leaving = *nodes.iter().find(|node| **node != leading).unwrap();
    let staying: Vec<&str> = nodes.into_iter().filter(|node| *node != leaving).collect();
    let hosts: Vec<String> = staying.iter().map(|node| address(&lab, node)).collect();
    // Ready controllers may still be on their way to a leader that was elected a moment ago.
    let sessions_before = until("a session of each controller", || {
        let sessions = sessions(&lab, leading, &hosts);
        if sessions.len() >= 2 { Ok(sessions) } else { Err(format!("{sessions:?}")) }
    });
    let pods_before = pods(&lab, &staying);

    kubectl(&lab, &["label", "node", "n4", &format!("{LABEL}=")]);
    await_remotes(&lab, &["n1", "n2", "n3", "n4"]);
    kubectl(&lab, &["label", "node", leaving, &format!("{LABEL}-")]);
    let members: Vec<&str> = [&staying[..], &["n4"]].concat();
    await_remotes(&lab, &members);

    let mut expected: BTreeSet<String> = members.iter().map(|node| address(&lab, node)).collect();
    until("db status", || {
        let found: BTreeSet<String> = status(&lab, leading).into_keys().collect();
        if found == expected { Ok(()) } else { Err(format!("{found:?}, not {expected:?}")) }
    });
    // Controllers, those without the Lease too, and with them the proxies of ovn-northd.
    let mut list = Vec::new();
    while let Some(host) = expected.pop_first() {
        list.push(format!("ssl:{host}:6641"));
    }
    for node in &staying {
        let name = pod(&lab, "ovnkube-master", node);
        // A controller follows the list by itself: what the nodes and the members know says nothing about it.
        until("the controller's list of servers", || {
            let log = kubectl(&lab, &["logs", &name, "-c", "ovnkube-controller"]);
            if log.contains(&list.join(",")) { Ok(()) } else { Err(format!("{node}: no {list:?} in\n{log}")) }
        });
    }
    let after = sessions(&lab, leading, &hosts);
    assert!(sessions_before.is_subset(&after), "sessions were {sessions_before:?} and are {after:?}");
    assert_eq!(pods(&lab, &staying), pods_before);
    scale_application(&lab, 4);
}
