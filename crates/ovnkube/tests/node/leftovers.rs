//! Orphaned ports and interfaces are removed by GC and at agent start; CHECK reports damage.

use lab::Family;
use serde_json::json;

use crate::cluster::until;
use crate::sandbox::{addresses, request};
use crate::site::Site;

#[test]
fn check_reports_damage_and_gc_removes_stale_attachments() {
    let site = Site::start("cni-garbage", 1, Family::Dual);
    site.agents(&[]);
    let all = ["kept", "lost", "address", "down", "route", "port"].map(|name| site.sandbox(name, 1));
    let answers = all.each_ref().map(crate::sandbox::Sandbox::add);
    let [kept, lost, address, down, route, port] = &all;
    kept.ask("CHECK").unwrap();

    let check_fails = |sandbox: &crate::sandbox::Sandbox, word: &str| {
        let error = sandbox.ask("CHECK").unwrap_err();
        assert!(error["code"] == 102 && error.to_string().contains(word), "{word:?} is not in {error}");
    };
    let own = addresses(&answers[2])[0];
    address.run(&["ip", "address", "del", &format!("{own}/23"), "dev", "eth0"]);
    check_fails(address, &format!("does not have the address {own}/23"));
    down.run(&["ip", "link", "set", "eth0", "down"]);
    check_fails(down, "is down");
    route.run(&["ip", "-6", "route", "del", "default"]);
    check_fails(route, "route to ::/0 is gone");
    // A deleted port is recreated while ovn-controller runs; until then CHECK fails.
    let name = answers[5]["interfaces"][0]["name"].as_str().unwrap();
    let paused = site.cluster.lab.pause("n1-ovn-controller").unwrap();
    site.machine(1).run(&["ovs-vsctl", "--timeout=30", "--no-wait", "del-port", "br-int", name]).unwrap();
    until("CHECK fails", || port.ask("CHECK").err());
    paused.resume().unwrap();
    until("the port is recreated", || port.ask("CHECK").ok());
    lost.run(&["ip", "link", "del", "eth0"]);
    check_fails(lost, "of the pod is gone");

    let valid = json!({"cni.dev/valid-attachments": [{"containerID": kept.name, "ifname": "eth0"}]});
    request(&site, 1, "GC", &valid).unwrap();
    assert_eq!(site.ports(1), ["default_kept"]);
    assert_eq!(site.ends(1).len(), 1);
    kept.ask("CHECK").unwrap();
    // A second GC writes nothing.
    let before = site.metric(1, "ovnkube_node_port_transactions_total");
    request(&site, 1, "GC", &valid).unwrap();
    assert_eq!(site.metric(1, "ovnkube_node_port_transactions_total"), before);
}

#[test]
fn a_restarted_agent_removes_orphaned_ports_and_keeps_the_rest() {
    let site = Site::start("cni-stale", 1, Family::V4);
    site.agents(&[]);
    let [one, two, gone, cut] = ["one", "two", "gone", "cut"].map(|name| site.sandbox(name, 1));
    let answer = one.add();
    two.add();
    gone.add();
    let lost = cut.add();
    site.cluster.lab.kill("agent-n1").unwrap();
    // While no agent runs: a pod is deleted, a network namespace vanishes, and an interface without a port is left.
    site.delete_pod("gone");
    cut.destroy();
    let name = lost["interfaces"][0]["name"].as_str().unwrap();
    until("its host-side interface is gone", || (!site.ends(1).contains(&name.to_owned())).then_some(()));
    let machine = site.machine(1);
    machine.run(&["ip", "link", "add", "pod0123456789ab", "type", "veth", "peer", "name", "other"]).unwrap();
    machine.run(&["ip", "link", "set", "pod0123456789ab", "alias", "ovnkube default/nobody"]).unwrap();
    machine.run(&["ip", "link", "add", "podman0", "type", "veth", "peer", "name", "podman1"]).unwrap();
    two.reaches(addresses(&answer)[0]);
    site.cluster.lab.restart("agent-n1").unwrap();
    until("orphaned ports are removed", || (site.ports(1) == ["default_one", "default_two"]).then_some(()));
    until("orphaned interfaces are removed", || (site.ends(1).len() == 4).then_some(()));
    assert!(site.ends(1).iter().any(|end| end == "podman0"));
    two.reaches(addresses(&answer)[0]);
    for sandbox in [&one, &two] {
        sandbox.ask("CHECK").unwrap();
    }
    // DEL of removed sandboxes succeeds.
    gone.delete();
    cut.delete();
}
