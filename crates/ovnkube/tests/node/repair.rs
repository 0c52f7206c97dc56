//! Deleted ports and interfaces of running pods: ports are recreated, lost interfaces are reported.

use lab::Family;

use crate::cluster::until;
use crate::sandbox::{Sandbox, addresses};
use crate::site::Site;

struct Attached {
    sandbox: Sandbox,
    /// The host-side interface, which is the port's name.
    end: String,
    address: std::net::IpAddr,
}

fn attach(site: &Site, name: &str) -> Attached {
    let sandbox = site.sandbox(name, 1);
    let answer = sandbox.add();
    let end = answer["interfaces"][0]["name"].as_str().unwrap().to_owned();
    Attached { sandbox, end, address: addresses(&answer)[0] }
}

fn vsctl(site: &Site, words: &[&str]) -> String {
    site.machine(1).run(&[&["ovs-vsctl", "--timeout=30"], words].concat()).unwrap()
}

/// The UUID of a port's row.
fn row(site: &Site, end: &str) -> Option<String> {
    let found = vsctl(site, &["--bare", "--columns=_uuid", "find", "Port", &format!("name={end}")]);
    Some(found.trim().to_owned()).filter(|row| !row.is_empty())
}

/// Changes a port with `ovs-vsctl` and waits until it is recreated.
fn is_recreated(site: &Site, pod: &Attached, what: &[&str]) {
    let before = row(site, &pod.end).unwrap();
    vsctl(site, what);
    until(&format!("the port is recreated after {what:?}"), || row(site, &pod.end).filter(|row| *row != before));
    until("CHECK succeeds", || pod.sandbox.ask("CHECK").ok());
}

#[test]
fn a_deleted_port_is_recreated_and_a_deleted_interface_is_reported() {
    let site = Site::start("cni-repair", 1, Family::V4);
    site.agents(&[]);
    let (one, two, lost) = (attach(&site, "one"), attach(&site, "two"), attach(&site, "lost"));
    for what in [
        &["del-port", "br-int", &one.end][..],
        &["set", "Interface", &one.end, "external_ids:iface-id=default_nobody"],
        &["remove", "Interface", &one.end, "external_ids", "sandbox"],
    ] {
        is_recreated(&site, &one, what);
        two.sandbox.reaches(one.address);
    }
    site.cluster.event_in("default", "one", "PodPortRecreated", &[&one.end, "br-int"]);
    until("the repairs are counted and logged", || {
        let counted = site.metric(1, "ovnkube_node_pod_ports_recreated_total") >= 3.0;
        let logged = site.cluster.lab.log("agent-n1").unwrap().contains("deleted or changed; recreated");
        (counted && logged).then_some(())
    });

    // While no agent runs: the next agent knows the sandbox and keeps its interface.
    site.cluster.lab.kill("agent-n1").unwrap();
    vsctl(&site, &["del-port", "br-int", &one.end]);
    site.cluster.lab.restart("agent-n1").unwrap();
    until("the port is recreated", || row(&site, &one.end));
    until("CHECK succeeds", || one.sandbox.ask("CHECK").ok());
    two.sandbox.reaches(one.address);

    // Without records (an older agent's sandboxes) the next agent takes them from Open vSwitch.
    site.cluster.lab.kill("agent-n1").unwrap();
    let records = site.path(1, "/run/ovn-kubernetes/cni/attachments");
    std::fs::remove_dir_all(&records).unwrap();
    site.cluster.lab.restart("agent-n1").unwrap();
    until("the records are restored", || {
        [&one, &two, &lost].iter().all(|pod| records.join(&pod.end).exists()).then_some(())
    });
    is_recreated(&site, &two, &["del-port", "br-int", &two.end]);

    // A lost interface is reported and not recreated.
    site.machine(1).run(&["ip", "link", "del", &lost.end]).unwrap();
    site.cluster.event_in("default", "lost", "PodNetworkLost", &["eth0", "delete the pod"]);
    let error = lost.sandbox.ask("CHECK").unwrap_err();
    assert!(error["code"] == 102 && error.to_string().contains("is gone"), "{error}");
    let without = || site.metric(1, "ovnkube_node_pods_without_network");
    until("the pod is counted", || (without() > 0.0).then_some(()));
    lost.sandbox.delete();
    until("the pod is no longer counted", || (without() == 0.0).then_some(()));

    // DEL cancels a repair that waits for flows: the port is not recreated.
    let before = row(&site, &one.end).unwrap();
    let paused = site.cluster.lab.pause("n1-ovn-controller").unwrap();
    vsctl(&site, &["--no-wait", "del-port", "br-int", &one.end]);
    until("the port is recreated", || row(&site, &one.end).filter(|row| *row != before));
    one.sandbox.delete();
    assert_eq!((row(&site, &one.end), site.ports(1)), (None, vec!["default_two".to_owned()]));
    paused.resume().unwrap();
    // When the next damage is repaired, the agent has reconciled again.
    is_recreated(&site, &two, &["del-port", "br-int", &two.end]);
    assert_eq!((row(&site, &one.end), site.ports(1)), (None, vec!["default_two".to_owned()]));
    two.sandbox.delete();
    site.assert_empty(1);
}
