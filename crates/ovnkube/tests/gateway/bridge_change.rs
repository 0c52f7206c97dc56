//! The external bridge changes: br-ex appears, or is recreated.

use std::net::SocketAddr;

use lab::{Family, Machine};
use netmodel::Family::V4;

use crate::host::plain_host;
use crate::site::{Client, Site, underlay, until};

/// The number of the agent's flows on a bridge.
fn flows(machine: &Machine, bridge: &str) -> usize {
    let ours = "cookie=0xdeff000000000000/0xffff000000000000";
    machine.run(&["ovs-ofctl", "dump-flows", bridge, ours]).map_or(0, |dump| dump.matches("actions=").count())
}

/// Creates br-ex from the device, as a host configuration tool would.
fn create_br_ex(machine: &Machine, before: &[&str]) {
    let mac = machine.run(&["cat", "/sys/class/net/eth0/address"]).unwrap();
    let hwaddr = format!("other_config:hwaddr=\"{}\"", mac.trim());
    let bridge = ["add-br", "br-ex", "--", "set", "bridge", "br-ex", "datapath_type=netdev", "fail_mode=standalone"];
    let port = [hwaddr.as_str(), "--", "add-port", "br-ex", "eth0"];
    machine.run(&[&["ovs-vsctl", "--timeout=30"], before, &bridge, &port].concat()).unwrap();
    // Without this the old bridge would keep its addresses.
    let _ = machine.run(&["ip", "addr", "flush", "dev", "breth0"]);
    for words in [
        &["ip", "link", "set", "br-ex", "up"][..],
        &["ip", "addr", "replace", "10.99.0.12/24", "brd", "+", "dev", "br-ex"],
        &["ip", "route", "replace", "default", "via", "10.99.0.254", "dev", "br-ex"],
    ] {
        machine.run(words).unwrap();
    }
}

#[test]
fn flows_follow_the_external_bridge() {
    let site = Site::without_agents("gw-another", Family::V4, "shared");
    let (n2, outside) = (site.lab.node(2).unwrap(), site.lab.machine("outside").unwrap());
    plain_host(&n2);
    // Without br-ex the agent creates a bridge from the device of the default route.
    site.run_agent(2);
    site.wait_ready(2);
    site.web_behind_a_node_port();
    let node_port = SocketAddr::new(underlay(12, V4), 30080);
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");
    let whole = flows(&n2, "breth0");
    assert!(whole > 20, "{whole} flows");

    create_br_ex(&n2, &["del-port", "breth0", "eth0", "--"]);
    until("br-ex has the flows", || (flows(&n2, "br-ex") >= whole).then_some(()));
    until("the old bridge has none", || (flows(&n2, "breth0") == 0).then_some(()));
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");

    // Another bridge with the same name.
    n2.run(&["ovs-vsctl", "--timeout=30", "del-br", "br-ex"]).unwrap();
    create_br_ex(&n2, &[]);
    until("br-ex has the flows again", || (flows(&n2, "br-ex") >= whole).then_some(()));
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");
}
