//! A node's Open vSwitch and ovn-controller, on the userspace datapath.

use crate::error::{Error, Result, make_dir};
use crate::machine::Machine;
use crate::ready::Ready;
use crate::site::{Component, Site};
use crate::spec::Ovn;
use crate::underlay::{self, CONTROL};

/// The bridge that holds the node's uplink and address.
pub const EXTERNAL_BRIDGE: &str = "br-ex";
const QUIET: [&str; 3] = ["-vconsole:info", "-vsyslog:off", "-vfile:off"];

/// Starts Open vSwitch on a node and makes br-ex with the uplink in it and the node's addresses on it.
pub(crate) fn start_openvswitch(site: &Site, node: &Machine) -> Result<()> {
    let run = site.machine_dir(&node.name).join("run/openvswitch");
    make_dir(&run)?;
    node.run(&["ovsdb-tool", "create", "/etc/openvswitch/conf.db", "/usr/share/openvswitch/vswitch.ovsschema"])?;
    let mut words = vec!["ovsdb-server"];
    words.extend(QUIET);
    words.extend([
        "--pidfile",
        "--remote=punix:/run/openvswitch/db.sock",
        "--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
        "/etc/openvswitch/conf.db",
    ]);
    let server =
        Component::new(format!("{}-ovsdb-server", node.name), &node.name, Ready::Path(run.join("db.sock")), &words);
    site.start(server)?;
    node.run(&[
        "ovs-vsctl",
        "--no-wait",
        "--",
        "init",
        "--",
        "set",
        "Open_vSwitch",
        ".",
        &format!("external_ids:system-id={}", node.name),
        &format!("external_ids:hostname={}", node.name),
        // Whoever makes br-int makes it on the datapath that the kernel here allows.
        "external_ids:ovn-bridge-datapath-type=netdev",
    ])?;

    let mut words = vec!["ovs-vswitchd"];
    words.extend(QUIET);
    words.extend(["--pidfile", "unix:/run/openvswitch/db.sock"]);
    let pidfile = run.join("ovs-vswitchd.pid");
    site.start(Component::new(format!("{}-ovs-vswitchd", node.name), &node.name, Ready::Path(pidfile), &words))?;
    make_external_bridge(site, node)
}

fn make_external_bridge(site: &Site, node: &Machine) -> Result<()> {
    let mac = node.run(&["cat", "/sys/class/net/eth0/address"])?;
    let hwaddr = format!("other_config:hwaddr=\"{}\"", mac.trim());
    // Without --no-wait: returns when ovs-vswitchd has made the bridge.
    node.run(&[
        "ovs-vsctl",
        "--timeout=60",
        "add-br",
        EXTERNAL_BRIDGE,
        "--",
        "set",
        "bridge",
        EXTERNAL_BRIDGE,
        "datapath_type=netdev",
        "fail_mode=standalone",
        &hwaddr,
        "--",
        "add-port",
        EXTERNAL_BRIDGE,
        "eth0",
    ])?;
    node.run_with_input(
        &["ip", "-batch", "-"],
        &format!("link set {EXTERNAL_BRIDGE} mtu 1500\nlink set {EXTERNAL_BRIDGE} up\n"),
    )?;
    underlay::address(node, &site.plan, EXTERNAL_BRIDGE)?;
    // The userspace datapath only gets copies of frames: without this the kernel would answer them as well.
    node.run_with_input(
        &["nft", "-f", "-"],
        "table netdev lab {\n chain uplink {\n type filter hook ingress device \"eth0\" priority -500; policy drop;\n }\n}\n",
    )?;
    Ok(())
}

/// Starts ovn-controller; returns when the node is registered as a chassis.
pub(crate) fn start_ovn_controller(site: &Site, node: &Machine, ovn: &Ovn) -> Result<()> {
    let remote = site.ledger.read().endpoints.southbound_remote.clone();
    let remote = remote.ok_or_else(|| Error::Invalid("the southbound database was not published".into()))?;
    let mut set: Vec<String> = ["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", "."].map(String::from).to_vec();
    for (key, value) in [
        ("ovn-remote", format!("\"{remote}\"")),
        ("ovn-encap-type", "geneve".into()),
        ("ovn-encap-ip", format!("\"{}\"", site.plan.primary(&node.name)?)),
        ("ovn-bridge-mappings", format!("physnet:{EXTERNAL_BRIDGE}")),
        ("ovn-monitor-all", "true".into()),
    ] {
        set.push(format!("external_ids:{key}={value}"));
    }
    node.run(&set.iter().map(String::as_str).collect::<Vec<_>>())?;

    let run = site.machine_dir(&node.name).join("run/ovn");
    make_dir(&run)?;
    let mut words = vec!["ovn-controller".to_owned()];
    words.extend(QUIET.map(String::from));
    if ovn.tls {
        let pki = site.dir().join("pki/ovn");
        words.push(format!("--private-key={}", pki.join("ovn.key").display()));
        words.push(format!("--certificate={}", pki.join("ovn.crt").display()));
        words.push(format!("--ca-cert={}", pki.join("ca.crt").display()));
    }
    words.extend(["--pidfile".into(), "unix:/run/openvswitch/db.sock".into()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let component = Component::new(
        format!("{}-ovn-controller", node.name),
        &node.name,
        Ready::Path(run.join("ovn-controller.pid")),
        &words,
    );
    site.start(component)?;
    // Returns when the southbound database has the chassis.
    site.machine(CONTROL)?.run(&["ovn-sbctl", "--timeout=60", "wait-until", "Chassis", &node.name])?;
    Ok(())
}
