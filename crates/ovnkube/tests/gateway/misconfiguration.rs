//! Host misconfiguration is reported with the remedy, and recovers when it is fixed.

use lab::{Family, Machine};

use crate::site::{Site, TIMEOUT, agent, until};

fn wait_not_ready(site: &Site, words: &[&str]) {
    let mut last = String::new();
    until(&format!("n1 reports {words:?}"), || {
        let (status, message) = site.condition(1)?;
        last.clone_from(&message);
        (status == "False" && words.iter().all(|word| message.contains(word))).then_some(())
    });
}

#[test]
fn host_misconfiguration_is_reported_until_fixed() {
    let site = Site::without_agents("gw-trouble", Family::V4, "shared");
    let n1 = site.lab.node(1).unwrap();
    let run = |words: &[&str]| drop(n1.run(words).unwrap());
    // An MTU that does not fit the uplink.
    site.run_agent_with(1, &["--mtu", "1500"]);
    wait_not_ready(&site, &["1500", "br-ex", "at most 1442"]);
    assert!(n1.run(&["ip", "link", "show", "ovn-k8s-mp0"]).is_err(), "nothing is created for a refused MTU");
    site.lab.terminate(&agent(1), TIMEOUT).unwrap();
    site.run_agent_as("n1-again", 1, &[]);
    site.wait_ready(1);

    run(&["ovs-vsctl", "del-port", "br-ex", "eth0"]);
    // The API is unreachable without the uplink; the log has it.
    site.wait_log("n1-again", "bridge br-ex has no uplink: add the host's device, as in ovs-vsctl add-port br-ex");
    run(&["ovs-vsctl", "add-port", "br-ex", "eth0"]);
    ready_through_the_uplink(&site, &n1);

    run(&["ip", "route", "append", "default", "via", "10.99.0.1"]);
    wait_not_ready(&site, &["2 default routes of the same metric", "10.99.0.1 and 10.99.0.254"]);
    run(&["ip", "route", "del", "default", "via", "10.99.0.1"]);
    site.wait_ready(1);
    // With different metrics the default route is unambiguous.
    run(&["ip", "route", "add", "default", "via", "10.99.0.1", "metric", "700"]);
    let gateway = || site.get(&["node", "n1"])["metadata"]["annotations"]["k8s.ovn.org/l3-gateway-config"].to_string();
    assert!(gateway().contains("10.99.0.254") && !gateway().contains("10.99.0.1\\"), "{}", gateway());

    run(&["ip", "addr", "flush", "dev", "br-ex", "to", "10.99.0.11"]);
    site.wait_log("n1-again", "bridge br-ex has no IPv4 address");
    run(&["ip", "addr", "add", "10.99.0.11/24", "dev", "br-ex"]);
    run(&["ip", "route", "replace", "default", "via", "10.99.0.254"]);
    site.wait_ready(1);

    run(&["ip", "link", "del", "eth0"]);
    site.wait_log("n1-again", "eth0 of bridge br-ex");
}

fn ready_through_the_uplink(site: &Site, n1: &Machine) {
    site.wait_ready(1);
    n1.run(&["ping", "-c", "1", "-w", "30", "10.99.0.254"]).unwrap();
}
