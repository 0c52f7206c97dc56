//! The connectivity matrix for each gateway mode and address family.

use std::time::Duration;

use lab::matrix::Matrix;
use lab::{Family, GatewayMode, Lab};

use crate::common::cluster;
use crate::{intruder, remains};

/// Kinds that every matrix must have in each family. (`kubernetes.default` has an address of the first family only.)
const KINDS: [&str; 22] = [
    "pod → pod, same node",
    "pod → pod, other node",
    "pod → service",
    "pod → DNS name",
    "pod → outside",
    "pod → own node",
    "pod → other node",
    "outside → NodePort",
    "host → ClusterIP",
    "host → own NodePort",
    "host → other node's NodePort",
    "host → own pod",
    "host → other node's pod",
    "client → guarded pod, before the policy",
    "client → guarded pod, under the policy",
    "client → guarded service, under the policy",
    "stranger → guarded pod, before the policy",
    "stranger → guarded pod, under the policy",
    "stranger → guarded pod, after its removal",
    "stranger → guarded service, before the policy",
    "stranger → guarded service, under the policy",
    "stranger → guarded service, after its removal",
];

fn check_matrix(name: &str, family: Family, gateway: GatewayMode) {
    let (lab, families) = (cluster(name, family, gateway), family.families());
    let matrix = Matrix::measure(&lab.record()).unwrap();
    println!("{}", matrix.table(false));
    assert!(matrix.wrong().is_empty(), "\n{}", matrix.table(false));
    // A missing kind would prove nothing.
    for family in &families {
        for kind in KINDS {
            assert!(matrix.checks.iter().any(|way| way.family == *family && way.kind == kind), "{family} {kind}");
        }
    }
    assert!(matrix.checks.iter().any(|way| way.kind == "pod → kubernetes.default"));
    let denied = matrix.checks.iter().filter(|way| way.kind.contains("under the policy") && !way.expected);
    assert!(denied.clone().count() >= 6 * families.len());
    // From a pod, by its own resolver.
    let connect = ["-n", "shop", "exec", "daemonset/client", "--", "/agnhost", "connect", "--timeout=20s", "web:80"];
    // A busy switch may lose a connection's first packet.
    lab::poll(Duration::from_secs(120), || lab.kubectl(&connect)).unwrap();
    // Agents and controllers may create Events.
    for agent in ["ovnkube-node", "ovnkube-master"] {
        let who = format!("--as=system:serviceaccount:ovn-kubernetes:{agent}");
        lab.kubectl(&["auth", "can-i", "create", "events", "-n", "default", &who]).unwrap();
    }
    tools_work_in_pods(&lab);
    intruder::cannot_write_the_databases(&lab);
    intruder::cannot_write_other_nodes(&lab);
    // Removing the lab leaves no pods, mounts, network namespaces or cgroups.
    let record = lab.record();
    drop(lab);
    remains::await_none(&record, &remains::dir(&record.name));
}

/// `ovn-nbctl` and `ovn-sbctl` work without arguments in the containers, and seccomp is active.
fn tools_work_in_pods(lab: &Lab) {
    for (pod, container, tool) in [
        ("daemonset/ovnkube-master", "ovnkube-controller", "ovn-nbctl"),
        ("daemonset/ovnkube-master", "ovnkube-controller", "ovn-sbctl"),
        ("daemonset/ovnkube", "ovn-controller", "ovn-sbctl"),
    ] {
        let words = ["-n", "ovn-kubernetes", "exec", pod, "-c", container, "--", tool, "--timeout=30", "show"];
        let said = lab.kubectl(&words).unwrap();
        assert!(said.contains(if tool == "ovn-nbctl" { "router " } else { "Chassis" }), "{tool} in {pod}: {said}");
        // 2: a seccomp filter is active.
        let words = ["-n", "ovn-kubernetes", "exec", pod, "-c", container, "--", "cat", "/proc/self/status"];
        let status = lab.kubectl(&words).unwrap();
        assert!(status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])), "{status}");
    }
}

#[test]
fn shared_gateway_v4() {
    check_matrix("shared-v4", Family::V4, GatewayMode::Shared);
}

#[test]
fn shared_gateway_v6() {
    check_matrix("shared-v6", Family::V6, GatewayMode::Shared);
}

#[test]
fn shared_gateway_dual_stack() {
    check_matrix("shared-dual", Family::Dual, GatewayMode::Shared);
}

#[test]
fn local_gateway_v4() {
    check_matrix("local-v4", Family::V4, GatewayMode::Local);
}

#[test]
fn local_gateway_v6() {
    check_matrix("local-v6", Family::V6, GatewayMode::Local);
}

#[test]
fn local_gateway_dual_stack() {
    check_matrix("local-dual", Family::Dual, GatewayMode::Local);
}
