//! The host's own configuration: bridge setup and its rollback, a restart without the API, and cleanup.

use std::net::SocketAddr;
use std::path::PathBuf;

use lab::{Family, Machine, Program};
use netmodel::Family::V4;
use serde_json::json;

use crate::site::{Client, Site, TIMEOUT, agent, underlay, until};

/// The host's configuration that cleanup must restore.
fn inventory(machine: &Machine) -> Vec<(&'static str, String)> {
    let commands: [(&str, &[&str]); 9] = [
        ("addresses", &["sh", "-c", "ip -o addr show | grep -v 'scope link' | sed 's/ *valid_lft.*//'"]),
        ("routes", &["ip", "route", "show", "table", "all"]),
        ("routes of IPv6", &["sh", "-c", "ip -6 route show table all | grep -v 'fe80\\|ff00'"]),
        ("rules", &["ip", "rule"]),
        ("neighbours", &["ip", "neigh", "show", "nud", "permanent"]),
        ("filters", &["nft", "list", "ruleset"]),
        ("bridges", &["sh", "-c", "ovs-vsctl --columns=name,external_ids list bridge | grep -v ovn-nb-cfg"]),
        (
            "settings",
            &[
                "sh",
                "-c",
                "cd /proc/sys/net/ipv4/conf; for i in *; do [ -e $i/rp_filter ] && echo $i $(cat $i/rp_filter $i/forwarding); done",
            ],
        ),
        (
            "ports",
            &[
                "sh",
                "-c",
                "for b in $(ovs-vsctl list-br); do ovs-vsctl list-ports $b | grep -v '^ovn-n\\|^patch'; done; true",
            ],
        ),
    ];
    commands.iter().map(|(what, words)| (*what, machine.run(words).unwrap())).collect()
}

fn clean_up(site: &Site, node: u32, more: &[&str]) {
    site.lab.terminate(&agent(node), TIMEOUT).unwrap();
    let name = format!("n{node}-cleanup");
    let program = Program::new(&name, PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
        .on(&format!("n{node}"))
        .arguments(["node", "--cleanup"])
        .arguments(site.agent_arguments(node))
        .arguments(more.iter().copied());
    site.lab.run(&program).unwrap();
    let status = site.lab.wait_end(&name, TIMEOUT).unwrap();
    assert!(status.success(), "{status}: {}", site.lab.log(&name).unwrap());
}

fn same(before: &[(&str, String)], after: &[(&str, String)]) {
    for ((what, before), (_, after)) in before.iter().zip(after) {
        assert_eq!(before, after, "{what}");
    }
}

fn check_cleanup(purpose: &str, mode: &'static str) {
    let site = Site::without_agents(purpose, Family::Dual, mode);
    let n1 = site.lab.node(1).unwrap();
    let before = inventory(&n1);
    site.run_agent(1);
    site.wait_ready(1);
    let (pod, addresses) = site.pod(1, "web-1", &json!({}));
    let endpoints: Vec<_> = addresses.iter().map(|address| (*address, 1, 8080)).collect();
    site.service(
        "near",
        json!({"type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{"port": 80, "nodePort": 30081}]}),
        &endpoints,
    );
    let outside = site.lab.machine("outside").unwrap();
    Client::Machine(&outside).reaches(SocketAddr::new(underlay(11, V4), 30081));
    assert_ne!(inventory(&n1), before);
    pod.remove().unwrap();
    clean_up(&site, 1, &[]);
    until("ovs-vswitchd has removed the management port", || {
        n1.run(&["ip", "link", "show", "ovn-k8s-mp0"]).is_err().then_some(())
    });
    same(&before, &inventory(&n1));
    let flows = n1.run(&["ovs-ofctl", "dump-flows", "br-ex"]).unwrap();
    assert_eq!(flows.lines().filter(|line| line.contains("actions=")).count(), 1, "{flows}");
    // A second cleanup is a no-op, not an error.
    site.lab.restart("n1-cleanup").unwrap();
    assert!(site.lab.wait_end("n1-cleanup", TIMEOUT).unwrap().success());
}

#[test]
fn cleanup_restores_the_host() {
    check_cleanup("gw-clean", "shared");
}

#[test]
fn cleanup_restores_the_host_local() {
    check_cleanup("gw-clean-local", "local");
}

/// Removes the lab's bridge: a host with its address on its device.
pub(crate) fn plain_host(machine: &Machine) {
    for words in [
        &["ovs-vsctl", "--timeout=30", "del-br", "br-ex"][..],
        &["nft", "delete", "table", "netdev", "lab"],
        &["ip", "addr", "add", "10.99.0.12/24", "brd", "+", "dev", "eth0"],
        &["ip", "route", "add", "default", "via", "10.99.0.254", "metric", "100"],
        &["ip", "route", "add", "198.51.100.0/24", "via", "10.99.0.1"],
        &["ip", "route", "add", "198.51.101.0/24", "via", "192.0.2.77", "dev", "eth0", "onlink"],
    ] {
        machine.run(words).unwrap();
    }
}

#[test]
fn a_failed_bridge_setup_is_rolled_back() {
    let site = Site::without_agents("gw-back", Family::V4, "shared");
    let n2 = site.lab.node(2).unwrap();
    plain_host(&n2);
    n2.run(&["ip", "addr", "add", "2001:db8:9::2/64", "dev", "eth0", "nodad"]).unwrap();
    // New devices take no IPv6 addresses.
    let switch = |value: &str| {
        n2.run(&["sh", "-c", &format!("echo {value} > /proc/sys/net/ipv6/conf/default/disable_ipv6")]).unwrap();
    };
    switch("1");
    let before = inventory(&n2);
    site.run_agent_with(2, &["--gateway-interface", "eth0"]);
    site.wait_log(&agent(2), "add address 2001:db8:9::2/64 to breth0");
    until("addresses and routes are back on the device", || {
        let now = inventory(&n2);
        let unchanged =
            |what: &str| now.iter().find(|(name, _)| *name == what) == before.iter().find(|(name, _)| *name == what);
        (unchanged("addresses") && unchanged("routes") && unchanged("routes of IPv6")).then_some(())
    });
    n2.run(&["ping", "-c", "1", "-w", "30", "203.0.113.1"]).unwrap();
    // When the cause is gone, the bridge is created.
    switch("0");
    site.wait_ready(2);
    let addresses = n2.run(&["ip", "-o", "addr", "show", "dev", "breth0"]).unwrap();
    assert!(addresses.contains("10.99.0.12/24") && addresses.contains("2001:db8:9::2/64"), "{addresses}");
}

#[test]
fn bridge_setup_survives_a_restart_without_the_api() {
    let site = Site::without_agents("gw-make", Family::V4, "shared");
    let (n1, n2, outside) =
        (site.lab.node(1).unwrap(), site.lab.node(2).unwrap(), site.lab.machine("outside").unwrap());
    plain_host(&n2);
    let before = inventory(&n2);
    site.run_agent(1);
    site.run_agent_with(2, &["--gateway-interface", "eth0"]);
    site.wait_ready(1);
    site.wait_ready(2);
    site.serve_on(&n2, 9090);
    let (pod, _) = site.web_behind_a_node_port();
    let host = SocketAddr::new(underlay(12, V4), 9090);
    let node_port = SocketAddr::new(underlay(12, V4), 30080);
    assert_eq!(Client::Machine(&outside).reaches(host).name, "n2");
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");
    assert_eq!(Client::Machine(&n1).reaches(node_port).name, "web-2");
    pod.run(&["ping", "-c", "1", "-w", "30", "203.0.113.1"]).unwrap();
    let addresses = n2.run(&["ip", "-o", "-4", "addr", "show", "scope", "global"]).unwrap();
    assert!(addresses.contains("breth0    inet 10.99.0.12/24") && !addresses.contains(": eth0 "), "{addresses}");
    assert!(n2.run(&["ip", "route"]).unwrap().contains("198.51.100.0/24 via 10.99.0.1 dev breth0"));

    // The node restarts with its OVS database; the API server is down.
    site.lab.kill(&agent(2)).unwrap();
    site.lab.kill("n2-ovs-vswitchd").unwrap();
    site.lab.kill("kube-apiserver").unwrap();
    site.lab.restart("n2-ovs-vswitchd").unwrap();
    site.lab.restart(&agent(2)).unwrap();
    assert_eq!(Client::Machine(&outside).reaches(host).name, "n2");
    until("the management port exists", || {
        n2.run(&["ip", "-o", "addr", "show", "ovn-k8s-mp0"]).ok().filter(|text| text.contains("inet 10.128"))
    });
    site.lab.restart("kube-apiserver").unwrap();
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");

    pod.remove().unwrap();
    clean_up(&site, 2, &["--gateway-interface", "eth0"]);
    until("the bridge is gone", || n2.run(&["ip", "link", "show", "breth0"]).is_err().then_some(()));
    until("the management port is gone", || n2.run(&["ip", "link", "show", "ovn-k8s-mp0"]).is_err().then_some(()));
    same(&before, &inventory(&n2));
    n2.run(&["ping", "-c", "1", "-w", "30", "203.0.113.1"]).unwrap();
}
