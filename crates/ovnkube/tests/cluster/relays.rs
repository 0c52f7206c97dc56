//! Relays of the southbound database, installed as docs/databases.md says: the nodes use them, pods are wired through them and reach
//! each other.

use std::time::Duration;

use lab::matrix::Matrix;
use lab::{Databases, Family, GatewayMode, Lab};

use crate::common::{cluster_of, scale_application};
use crate::members::{address, kubectl, pod, remote, until};

const MANIFEST: &str = include_str!("../../../../deploy/relay/relay.yaml");
const NODES: [&str; 2] = ["n1", "n2"];

fn rollout(lab: &Lab, daemonset: &str) {
    let words = ["kubectl", "-n", "ovn-kubernetes", "rollout", "status", daemonset, "--timeout=170s"];
    lab.machine("control").unwrap().run_within(Duration::from_secs(180), &words).unwrap();
}

/// Applies ConfigMap `ovn-config` with or without relays.
fn use_relays(lab: &Lab, relays: Option<&str>) {
    let patch = serde_json::json!({"data": {"OvnSouthRelay": relays}}).to_string();
    kubectl(lab, &["patch", "configmap", "ovn-config", "--type=merge", "-p", &patch]);
    for daemonset in ["daemonset/ovnkube", "daemonset/ovnkube-master"] {
        kubectl(lab, &["rollout", "restart", daemonset]);
        rollout(lab, daemonset);
    }
}

fn await_remotes(lab: &Lab, expected: &str) {
    for node in NODES {
        until("ovn-remote", || {
            let found = remote(lab, node);
            if found == expected { Ok(()) } else { Err(format!("{node}: {found}, not {expected}")) }
        });
    }
}

#[test]
#[ignore = "takes about three minutes: make test-relays"]
fn nodes_use_the_relays_of_the_manifest() {
    let lab = cluster_of(2, "relays", Family::V4, GatewayMode::Shared, Databases::Pods);
    let members = remote(&lab, "n1");
    for node in NODES {
        lab.kubectl(&["label", "node", node, "k8s.ovn.org/southbound-relay="]).unwrap();
    }
    lab.apply(MANIFEST).unwrap();
    rollout(&lab, "daemonset/ovnkube-relay");

    let mut relays = NODES.map(|node| format!("ssl:{}:16642", address(&lab, node)));
    relays.sort();
    let relays = relays.join(",");
    use_relays(&lab, Some(&relays));
    await_remotes(&lab, &relays);
    // New pods are wired through the relays: no node is a client of a member any more, and the relays have clients.
    scale_application(&lab, 5);
    for node in NODES {
        let established = ["ss", "-Htn", "state", "established", "( dport = :16642 )"];
        let clients = lab.machine(node).unwrap().run(&established).unwrap();
        assert!(!clients.trim().is_empty(), "no client of a relay on {node}");
    }
    let matrix = Matrix::measure(&lab.record()).unwrap();
    assert!(matrix.wrong().is_empty(), "\n{}", matrix.table(false));

    // The server of a relay dies: its nodes use the other relay, or this one when it is back.
    let server = "kill -9 $(cat /run/ovn/ovnsb_relay.pid)";
    kubectl(&lab, &["exec", &pod(&lab, "ovnkube-relay", "n2"), "--", "sh", "-c", server]);
    scale_application(&lab, 7);

    // Back, as documented.
    use_relays(&lab, None);
    await_remotes(&lab, &members);
    scale_application(&lab, 8);
}
