//! Pods are wired, talk to each other over two nodes, and leave nothing behind.

use lab::Family;
use serde_json::json;

use crate::sandbox::{addresses, request};
use crate::site::{Site, configuration};

fn pods_talk(purpose: &'static str, family: Family, count: usize) {
    let site = Site::start(purpose, 2, family);
    site.agents(&[]);
    let (one, near, far) = (site.sandbox("one", 1), site.sandbox("near", 1), site.sandbox("far", 2));
    // One by the plugin itself, as a runtime starts it.
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
    // No address is tentative, everything goes by the gateway, and what leaves is whole.
    assert!(!one.run(&["ip", "address", "show", "dev", "eth0", "scope", "global"]).contains("tentative"));
    assert!(one.run(&["ip", "link", "show", "lo"]).contains("UP"));
    assert!(one.run(&["ethtool", "-k", "eth0"]).contains("tx-checksumming: off"));
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
    assert!(site.metric(1, "ovnkube_node_cni_request_duration_seconds_count{command=\"ADD\",err=\"false\"}") >= 2.0);
}

#[test]
fn pods_talk_over_ipv4() {
    pods_talk("cni-v4", Family::V4, 1);
}

#[test]
fn pods_talk_over_ipv6() {
    pods_talk("cni-v6", Family::V6, 1);
}

#[test]
fn pods_talk_over_both() {
    pods_talk("cni-dual", Family::Dual, 2);
}

/// A new MTU is that of pods that are wired from then on; those before keep theirs and go on.
#[test]
fn a_new_mtu_reaches_new_pods() {
    let site = Site::start("cni-mtu", 1, Family::V4);
    site.agents(&[]);
    let (before, after) = (site.sandbox("before", 1), site.sandbox("after", 1));
    let old = before.add();
    site.cluster.lab.terminate("agent-n1", std::time::Duration::from_secs(20)).unwrap();
    site.agent(1, &["--mtu", "1300"]);
    let new = after.add();
    assert!(before.run(&["ip", "link", "show", "eth0"]).contains("mtu 1400"));
    assert!(after.run(&["ip", "link", "show", "eth0"]).contains("mtu 1300"));
    before.talks_to(&after, addresses(&new)[0]);
    after.talks_to(&before, addresses(&old)[0]);
    for sandbox in [&before, &after] {
        sandbox.ask("CHECK").unwrap();
    }
}
