//! The minimum of connecting a pod: its veth pair by netlink, one transaction, and waiting for ovn-controller. No
//! request, no read of the pod, no rollback.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use lab::Machine;
use node::kernel::pod_link::PodLink;
use serde_json::json;

use crate::port_monitor::PortMonitor;
use crate::world::Sandbox;

/// Connects a pod; returns the seconds.
pub(crate) fn wire(machine: &Machine, monitor: &PortMonitor, sandbox: &Sandbox) -> Result<f64> {
    let text = |key: &str| sandbox.network[key].as_str().with_context(|| format!("no {key} in the annotation"));
    let gateway = text("gateway_ip")?;
    let link = PodLink {
        host: format!("bare{}", sandbox.pod),
        alias: String::new(),
        inside: "eth0".to_owned(),
        mac: text("mac_address")?.parse()?,
        mtu: 1400,
        addresses: vec![text("ip_address")?.parse()?],
        routes: vec![cni::Route { destination: "0.0.0.0/0".parse()?, via: Some(gateway.parse()?) }],
        userspace: true,
    };
    let namespace: PathBuf = format!("/proc/{}/root{}", machine.init().pid, sandbox.path()).into();
    let ids = json!(["map", [["iface-id", sandbox.port()], ["iface-id-ver", sandbox.uid]]]);
    let operations = [
        json!({"op": "insert", "table": "Interface", "uuid-name": "interface",
            "row": {"name": link.host, "external_ids": ids}}),
        json!({"op": "insert", "table": "Port", "uuid-name": "port",
            "row": {"name": link.host, "interfaces": ["named-uuid", "interface"]}}),
        json!({"op": "mutate", "table": "Bridge", "where": [["name", "==", "br-int"]],
            "mutations": [["ports", "insert", ["named-uuid", "port"]]]}),
    ];
    let start = Instant::now();
    machine.with_network(|| link.create(&namespace))??;
    monitor.transact(&operations)?;
    let installed = monitor.installed(&sandbox.port())?;
    Ok((installed - start).as_secs_f64())
}

/// Removes the port and the interface pair of `wire`.
pub(crate) fn unwire(machine: &Machine, sandbox: &Sandbox) -> Result<()> {
    let name = format!("bare{}", sandbox.pod);
    machine.run(&["ovs-vsctl", "--timeout=60", "--if-exists", "del-port", "br-int", &name])?;
    machine.run(&["ip", "link", "del", &name])?;
    Ok(())
}
