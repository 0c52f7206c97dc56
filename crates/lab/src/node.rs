//! Open vSwitch and ovn-controller of a node, with the userspace datapath.

use crate::error::{Error, Result, create_dir};
use crate::machine::Machine;
use crate::ready::Ready;
use crate::spec::Ovn;
use crate::supervisor::{Component, Supervisor};
use crate::underlay::{self, CONTROL};

/// The bridge with the node's uplink and addresses.
pub(crate) const EXTERNAL_BRIDGE: &str = "br-ex";
const LOG_OPTIONS: [&str; 3] = ["-vconsole:info", "-vsyslog:off", "-vfile:off"];

/// Starts Open vSwitch on a node and creates br-ex with the uplink and the node's addresses.
pub(crate) fn start_openvswitch(supervisor: &Supervisor, node: &Machine) -> Result<()> {
    let run = supervisor.machine_dir(&node.name).join("run/openvswitch");
    create_dir(&run)?;
    node.run(&["ovsdb-tool", "create", "/etc/openvswitch/conf.db", "/usr/share/openvswitch/vswitch.ovsschema"])?;
    let mut args = vec!["ovsdb-server"];
    args.extend(LOG_OPTIONS);
    args.extend([
        "--pidfile",
        "--remote=punix:/run/openvswitch/db.sock",
        "--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
        "/etc/openvswitch/conf.db",
    ]);
    let server =
        Component::new(format!("{}-ovsdb-server", node.name), &node.name, Ready::Path(run.join("db.sock")), &args);
    supervisor.start(server)?;
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
        // br-int must use the userspace datapath: there may be no kernel module here.
        "external_ids:ovn-bridge-datapath-type=netdev",
    ])?;

    let mut args = vec!["ovs-vswitchd"];
    args.extend(LOG_OPTIONS);
    args.extend(["--pidfile", "unix:/run/openvswitch/db.sock"]);
    let pidfile = run.join("ovs-vswitchd.pid");
    supervisor.start(Component::new(format!("{}-ovs-vswitchd", node.name), &node.name, Ready::Path(pidfile), &args))?;
    create_external_bridge(supervisor, node)
}

fn create_external_bridge(supervisor: &Supervisor, node: &Machine) -> Result<()> {
    let mac = node.run(&["cat", "/sys/class/net/eth0/address"])?;
    let hwaddr = format!("other_config:hwaddr=\"{}\"", mac.trim());
    // Without --no-wait: returns when ovs-vswitchd has created the bridge.
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
    configure_external_bridge(supervisor, node)?;
    // The userspace datapath only gets copies of frames: without this rule the kernel would answer them as well.
    node.run_with_input(
        &["nft", "-f", "-"],
        "table netdev lab {\n chain uplink {\n type filter hook ingress device \"eth0\" priority -500; policy drop;\n }\n}\n",
    )?;
    Ok(())
}

/// Sets the node's addresses and routes on br-ex. It has none when ovs-vswitchd has created it, and the former ones if it
/// outlived its ovs-vswitchd.
pub(crate) fn configure_external_bridge(supervisor: &Supervisor, node: &Machine) -> Result<()> {
    // ovs-vswitchd has started, but may not have created the interface yet.
    let appears = format!("until [ -e /sys/class/net/{EXTERNAL_BRIDGE} ]; do sleep 0.05; done");
    node.run(&["sh", "-c", &appears])?;
    node.run(&["ip", "address", "flush", "dev", EXTERNAL_BRIDGE, "scope", "global"])?;
    node.run_with_input(
        &["ip", "-batch", "-"],
        &format!("link set {EXTERNAL_BRIDGE} mtu 1500\nlink set {EXTERNAL_BRIDGE} up\n"),
    )?;
    underlay::configure_addresses(node, &supervisor.plan, EXTERNAL_BRIDGE)
}

/// Starts ovn-controller; returns when its chassis is registered.
pub(crate) fn start_ovn_controller(supervisor: &Supervisor, node: &Machine, ovn: &Ovn) -> Result<()> {
    let remote = supervisor.record_file.read().endpoints.southbound_remote.clone();
    let remote =
        remote.ok_or_else(|| Error::Invalid("the address of the southbound database is not recorded".into()))?;
    let mut set: Vec<String> = ["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", "."].map(String::from).to_vec();
    for (key, value) in [
        ("ovn-remote", format!("\"{remote}\"")),
        ("ovn-encap-type", "geneve".into()),
        ("ovn-encap-ip", format!("\"{}\"", supervisor.plan.primary(&node.name)?)),
        ("ovn-bridge-mappings", format!("physnet:{EXTERNAL_BRIDGE}")),
        ("ovn-monitor-all", "true".into()),
    ] {
        set.push(format!("external_ids:{key}={value}"));
    }
    node.run(&set.iter().map(String::as_str).collect::<Vec<_>>())?;

    let run = supervisor.machine_dir(&node.name).join("run/ovn");
    create_dir(&run)?;
    let mut args = vec!["ovn-controller".to_owned()];
    args.extend(LOG_OPTIONS.map(String::from));
    if ovn.tls {
        let pki = supervisor.dir().join("pki/ovn");
        args.push(format!("--private-key={}", pki.join("ovn.key").display()));
        args.push(format!("--certificate={}", pki.join("ovn.crt").display()));
        args.push(format!("--ca-cert={}", pki.join("ca.crt").display()));
    }
    args.extend(["--pidfile".into(), "unix:/run/openvswitch/db.sock".into()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let component = Component::new(
        format!("{}-ovn-controller", node.name),
        &node.name,
        Ready::Path(run.join("ovn-controller.pid")),
        &args,
    );
    supervisor.start(component)?;
    // Returns when the chassis row exists.
    supervisor.machine(CONTROL)?.run(&["ovn-sbctl", "--timeout=60", "wait-until", "Chassis", &node.name])?;
    Ok(())
}
