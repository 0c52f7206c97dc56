//! Databases in pods as one active server and backups: a killed server continues with its data, a backup takes over from one
//! that hangs or is cut off, and the former active server returns as a backup.

use std::collections::BTreeMap;

use lab::{Databases, Family, GatewayMode, Lab, LabSpec, Ovn};

use crate::common::{product, scale_application};
use crate::members::{kubectl, pod, remote, until};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

struct Servers<'a> {
    lab: &'a Lab,
    /// `nb` or `sb`.
    kind: &'static str,
}

impl Servers<'_> {
    fn exec(&self, node: &str, script: &str) -> Result<String, String> {
        let pod = pod(self.lab, "ovnkube-db", node);
        let container = format!("{}db", self.kind);
        let words = ["-n", "ovn-kubernetes", "exec", &pod, "-c", &container, "--", "sh", "-c", script];
        self.lab.kubectl(&words).map(|text| text.trim().to_owned()).map_err(|error| error.to_string())
    }

    fn signal(&self, node: &str, signal: &str) {
        self.exec(node, &format!("kill -{signal} $(cat /run/ovn/ovn{}_db.pid)", self.kind)).unwrap();
    }

    fn sync_status(&self, node: &str) -> Result<String, String> {
        self.exec(node, &format!("ovn-appctl -t /run/ovn/ovn{}_db.ctl --timeout=5 ovsdb-server/sync-status", self.kind))
    }

    /// The address that clients follow.
    fn published(&self) -> String {
        let slice = format!("endpointslice/ovnkube-{}-active", self.kind);
        kubectl(self.lab, &["get", &slice, "-o", "jsonpath={.endpoints[0].addresses[0]}"])
    }

    /// Waits until one server is active and published, and all others of these nodes replicate from it; returns its node.
    fn await_active(&self, nodes: &[&'static str], not: Option<&str>) -> &'static str {
        until("one active server", || {
            let published = self.published();
            let states: BTreeMap<&'static str, String> =
                nodes.iter().map(|node| (*node, self.sync_status(node).unwrap_or_else(|error| error))).collect();
            let active: Vec<&'static str> =
                states.iter().filter(|(_, state)| state.contains("state: active")).map(|(node, _)| *node).collect();
            let wrong = || Err(format!("{} at {published}: {states:?}", self.kind));
            let [active] = active[..] else { return wrong() };
            let from = format!("replicating: ssl:{published}:");
            let followed = states.iter().all(|(node, state)| *node == active || state.contains(&from));
            if followed && address(self.lab, active) == published && Some(active) != not { Ok(active) } else { wrong() }
        })
    }
}

/// From each pod, `ovnkube db status` shows the active server and the backups, with what their managers report.
fn await_all_in_status(servers: &Servers<'_>) {
    for node in NODES {
        until("all members are shown", || {
            // Exit status 1 with a report if something is wrong.
            let text = servers.exec(node, &format!("ovnkube db status {} -o json || true", servers.kind))?;
            let report: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
            let members = report[0]["members"].as_array().ok_or("no members")?;
            let mut roles: Vec<_> = members.iter().filter_map(|member| member["role"].as_str()).collect();
            roles.sort_unstable();
            let full = members.iter().all(|member| member["details"]["fileBytes"].is_u64());
            if roles == ["active", "backup", "backup"] && full { Ok(()) } else { Err(format!("{node}: {text}")) }
        });
    }
}

fn address(lab: &Lab, node: &str) -> String {
    let path = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    kubectl(lab, &["get", "node", node, "-o", path])
}

/// Every pod of the application has exactly one port in the northbound database of a node.
fn await_ports(lab: &Lab, active: &str) {
    let servers = Servers { lab, kind: "nb" };
    until("one port for each pod", || {
        let list = "ovn-nbctl --no-leader-only --bare --columns=name list Logical_Switch_Port | grep . | sort";
        let ports = servers.exec(active, list)?;
        let pods = lab.kubectl(&["-n", "shop", "get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]);
        let pods = pods.map_err(|error| error.to_string())?;
        let count = |pod: &str| ports.lines().filter(|port| **port == format!("shop_{pod}")).count();
        let wrong: Vec<(&str, usize)> =
            pods.split_whitespace().map(|pod| (pod, count(pod))).filter(|(_, count)| *count != 1).collect();
        if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?}")) }
    });
}

/// Asks for pods without waiting for them.
fn create_pods(lab: &Lab, replicas: u32) {
    lab.kubectl(&["-n", "shop", "scale", "deployment/web", &format!("--replicas={replicas}")]).unwrap();
}

#[test]
fn a_backup_takes_over_and_the_former_active_server_becomes_one() {
    let ovn = Ovn { databases: Databases::ActiveBackup, ..Ovn::default() };
    let spec = LabSpec::for_test("activebackup").unwrap().nodes(3).control_planes(3).family(Family::V4).ovn(ovn);
    let lab = Lab::start(spec.product(product(GatewayMode::Shared))).unwrap();
    let (north, south) = (Servers { lab: &lab, kind: "nb" }, Servers { lab: &lab, kind: "sb" });
    let first = north.await_active(&NODES, None);
    south.await_active(&NODES, None);
    await_all_in_status(&north);
    await_all_in_status(&south);

    // A killed server continues with its file while pods are created: nothing is lost.
    create_pods(&lab, 6);
    north.signal(first, "KILL");
    scale_application(&lab, 6);
    await_ports(&lab, north.await_active(&NODES, None));
    // The managers of the active server and of the backups are alive by a heartbeat.
    for node in NODES {
        let alive = north.exec(node, "ovnkube health livez --address 127.0.0.1:9104").unwrap();
        assert!(alive.contains("checks") && alive.contains("last success"), "{node}: {alive}");
    }

    // One that hangs while pods are created: a backup takes over. What it lacks, the controller writes again.
    let hung = north.await_active(&NODES, None);
    create_pods(&lab, 10);
    north.signal(hung, "STOP");
    let second = north.await_active(&NODES, Some(hung));
    scale_application(&lab, 10);
    await_ports(&lab, second);

    // The same for the southbound database: the nodes follow.
    let hung = south.await_active(&NODES, None);
    south.signal(hung, "STOP");
    let second_south = south.await_active(&NODES, Some(hung));
    for node in NODES {
        let expected = format!("ssl:{}:6642", address(&lab, second_south));
        until("ovn-remote", || {
            let found = remote(&lab, node);
            if found == expected { Ok(()) } else { Err(format!("{node}: {found}, not {expected}")) }
        });
    }
    scale_application(&lab, 11);

    // A node is cut off from everything, with the active northbound server on it. It stops accepting writes by itself; when
    // it is back, it is a backup.
    let others: Vec<&'static str> = NODES.into_iter().filter(|node| *node != second).collect();
    let cuts: Vec<_> = others.iter().chain(&["control"]).map(|other| lab.partition(second, other).unwrap()).collect();
    let third = north.await_active(&others, Some(second));
    let local = "ovs-appctl -t /run/ovn/ovnnb_db.ctl --timeout=5 ovsdb-server/sync-status";
    until("the server that is cut off is read-only", || {
        let state = lab.machine(second).unwrap().run(&["sh", "-c", local]).map_err(|error| error.to_string())?;
        if state.contains("state: backup") { Ok(()) } else { Err(state) }
    });
    for cut in cuts {
        cut.heal().unwrap();
    }
    north.await_active(&NODES, Some(second));
    south.await_active(&NODES, None);
    scale_application(&lab, 4);
    await_ports(&lab, third);
}
