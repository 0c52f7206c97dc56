//! ADD, CHECK and DEL of pods on two nodes, and their connectivity.

use lab::Family;
use serde_json::json;

use crate::cluster::{TIMEOUT, until};
use crate::sandbox::{addresses, request};
use crate::site::{Site, configuration};

fn check_pods_communicate(purpose: &'static str, family: Family, count: usize) {
    let site = Site::start(purpose, 2, family);
    site.agents(&[]);
    let (one, near, far) = (site.sandbox("one", 1), site.sandbox("near", 1), site.sandbox("far", 2));
    // By the installed plugin, as a runtime starts it.
    let answer = one.run_plugin("ADD", &configuration("1.1.0", &json!({"dns": {"search": ["x.y"]}})), None).unwrap();
    assert_eq!(answer["interfaces"][1]["mtu"], 1400);
    assert_eq!(answer["interfaces"][1]["sandbox"], "/run/netns/sandbox-of-one");
    assert_eq!(answer["dns"]["search"][0], "x.y");
    assert_eq!(answer["ips"].as_array().unwrap().len(), count);
    assert_eq!(
        addresses(&answer),
        site.cluster.network_of("default", "one").addresses.iter().map(|one| one.address()).collect::<Vec<_>>()
    );
    let (near_answer, far_answer) = (near.add(), far.add());
    for address in addresses(&near_answer) {
        one.reaches(address);
        one.talks_to(&near, address);
    }
    for address in addresses(&far_answer) {
        one.reaches(address);
        one.talks_to(&far, address);
    }
    // No tentative address, default routes, and checksums computed in software.
    assert!(!one.run(&["ip", "address", "show", "dev", "eth0", "scope", "global"]).contains("tentative"));
    assert!(one.run(&["ip", "link", "show", "lo"]).contains("UP"));
    assert!(one.run(&["ethtool", "-k", "eth0"]).contains("tx-checksumming: off"));
    // Router advertisements are not accepted.
    let advertisements = |device: &str| format!("/proc/sys/net/ipv6/conf/{device}/accept_ra");
    assert_eq!(one.run(&["cat", &advertisements("eth0")]).trim(), "0");
    assert_eq!(site.machine(1).run(&["cat", &advertisements("ovn-k8s-mp0")]).unwrap().trim(), "0");
    if family.has_v4() {
        assert!(one.run(&["ip", "route", "show", "default"]).contains("dev eth0"));
        assert!(one.run(&["ip", "route", "show", "10.96.0.0/16"]).contains("via"));
    }
    if family.has_v6() {
        assert!(one.run(&["ip", "-6", "route", "show", "default"]).contains("dev eth0"));
    }
    for sandbox in [&one, &near, &far] {
        sandbox.ask("CHECK").unwrap();
    }
    request(&site, 1, "VERSION", &json!({})).unwrap();
    assert_eq!(site.ports(1), ["default_near", "default_one"]);
    for sandbox in [&one, &near, &far] {
        sandbox.delete();
        sandbox.delete();
        sandbox.destroy();
        sandbox.delete();
    }
    for node in 1..=2 {
        site.assert_empty(node);
    }
    // Repeated DELs removed each sandbox once.
    let log = site.cluster.lab.log("agent-n1").unwrap();
    assert_eq!(log.matches(r#""message":"removed attachment""#).count(), 2, "{log}");
    assert!(site.metric(1, "ovnkube_node_cni_request_duration_seconds_count{command=\"ADD\",err=\"false\"}") >= 2.0);
}

#[test]
fn pods_communicate_over_ipv4() {
    check_pods_communicate("cni-v4", Family::V4, 1);
}

#[test]
fn pods_communicate_over_ipv6() {
    check_pods_communicate("cni-v6", Family::V6, 1);
}

#[test]
fn pods_communicate_dual_stack() {
    check_pods_communicate("cni-dual", Family::Dual, 2);
}

/// A new MTU in the configuration file applies to pods connected later; existing pods keep theirs. An MTU that does not
/// fit is reported and not used.
#[test]
fn a_changed_mtu_applies_to_new_pods() {
    let site = Site::start("cni-mtu", 1, Family::V4);
    let file = site.path(1, "/run/ovn_k8s.conf");
    let write = |text: &str| {
        std::fs::write(file.with_extension("new"), text).unwrap();
        std::fs::rename(file.with_extension("new"), &file).unwrap();
    };
    write("[default]\nmtu = 1400\n");
    site.agents(&["--config", "/run/ovn_k8s.conf"]);
    let before = site.sandbox("before", 1);
    let old = before.add();
    let host = site.machine(1);
    let wait_mtu = |mtu: &str| {
        until(&format!("MTU {mtu} is in effect"), || {
            let device = host.run(&["ip", "link", "show", "ovn-k8s-mp0"]).ok()?;
            device.contains(&format!("mtu {mtu} ")).then_some(())
        });
    };
    write("[default]\nmtu = 1300\n");
    wait_mtu("1300");
    let asked = host.run(&["ovs-vsctl", "--timeout=30", "get", "Interface", "ovn-k8s-mp0", "mtu_request"]).unwrap();
    assert_eq!(asked.trim(), "1300");
    let after = site.sandbox("after", 1);
    let new = after.add();
    write("[default]\nmtu = 9000\n");
    let refused = until("an Event refuses the MTU", || {
        let events = site.cluster.get(&["events", "--field-selector", "reason=MtuRefused"]);
        Some(events["items"].get(0)?["message"].as_str()?.to_owned())
    });
    assert!(
        refused.contains("9000") && refused.contains("at most 1442") && refused.contains("1300 stays"),
        "{refused}"
    );
    // Nor does it prevent the next start.
    site.cluster.lab.terminate("agent-n1", TIMEOUT).unwrap();
    site.cluster.lab.restart("agent-n1").unwrap();
    until("the agent is ready", || request(&site, 1, "STATUS", &json!({})).ok());
    write("[default]\nmtu = soon\n[gateway]\n");
    until("an Event refuses the file", || {
        let events = site.cluster.get(&["events", "--field-selector", "reason=SettingsRefused"]);
        let message = events["items"].get(0)?["message"].as_str()?.to_owned();
        (message.contains("not a usable MTU") && message.contains("correct the file")).then_some(())
    });
    let last = site.sandbox("last", 1);
    last.add();
    for (sandbox, mtu) in [(&before, "1400"), (&after, "1300"), (&last, "1300")] {
        assert!(sandbox.run(&["ip", "link", "show", "eth0"]).contains(&format!("mtu {mtu} ")));
        sandbox.ask("CHECK").unwrap();
    }
    before.talks_to(&after, addresses(&new)[0]);
    after.talks_to(&before, addresses(&old)[0]);
}
