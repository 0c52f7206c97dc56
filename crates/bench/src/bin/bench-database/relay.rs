//! When a relay pays: bytes to each node, and CPU of the southbound server, with and without a relay and with and without
//! conditional monitoring.

use anyhow::{Context, Result};
use bench::Figure;
use lab::Program;

use crate::managed::{await_child, ovnkube};
use crate::nodes::{Nodes, received};

/// Real ovn-controllers, and all nodes.
const REAL: u32 = 8;
const NODES: usize = 20;
/// Pods before the first measurement, and in each.
const BEFORE: usize = 500;
const MORE: usize = 200;
/// The machine of the relay: it has no other traffic.
const MACHINE: &str = "outside";
const PORT: u16 = 16642;

/// Bytes and CPU of servers, relay and nodes for some work.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Bytes to each real node.
    node: f64,
    /// Bytes from the southbound server to the relay; 0 without one.
    upstream: f64,
    /// CPU seconds of the southbound server.
    server: f64,
    /// CPU seconds of the relay; 0 without one.
    relay: f64,
}

struct Lab {
    nodes: Nodes,
    /// Process of the relay's ovsdb-server.
    relay: u32,
    direct: String,
    through: String,
}

pub(crate) fn figures(divisor: usize) -> Result<Vec<Figure>> {
    let real = (REAL / u32::try_from(divisor)?).max(2);
    let nodes = Nodes::start(real, (NODES / divisor).max(4))?;
    let before = nodes.grow("before", BEFORE / divisor)?;
    nodes.bind(&before)?;
    let lab = start_relay(nodes)?;
    let more = MORE / divisor;
    let mut figures = Vec::new();
    for monitor_all in [true, false] {
        let mut costs = Vec::new();
        for relayed in [false, true] {
            let words = format!(
                "{} nodes, monitor-all {monitor_all}, {}",
                lab.nodes.real,
                if relayed { "through a relay" } else { "without a relay" }
            );
            eprintln!("{words}");
            let remote = if relayed { &lab.through } else { &lab.direct };
            lab.nodes.set(&[("ovn-remote", remote), ("ovn-monitor-all", &monitor_all.to_string())])?;
            lab.nodes.settle()?;
            let start = lab.cost(Nodes::restart)?;
            let grown = lab.cost(|nodes| nodes.grow(&format!("more-{monitor_all}-{relayed}"), more).map(drop))?;
            add_figures(&mut figures, &format!("start of all ovn-controllers, {words}"), start, relayed);
            add_figures(&mut figures, &format!("{more} more pods, {words}"), grown, relayed);
            costs.push((start, grown));
        }
        let [direct, relayed] = costs.as_slice() else { continue };
        let ratio = |direct: Cost, relayed: Cost| relayed.server / direct.server.max(0.01);
        for (what, ratio) in
            [("start of all ovn-controllers", ratio(direct.0, relayed.0)), ("more pods", ratio(direct.1, relayed.1))]
        {
            let name =
                format!("relay: CPU of the southbound server with against without, {what}, monitor-all {monitor_all}");
            figures.push(Figure::new(name, ratio, "×"));
        }
    }
    Ok(figures)
}

fn add_figures(figures: &mut Vec<Figure>, words: &str, cost: Cost, relayed: bool) {
    eprintln!("  {words}: {cost:?}");
    figures.push(Figure::new(format!("relay: bytes to each node, {words}"), cost.node, "bytes"));
    figures.push(Figure::new(format!("relay: CPU of the southbound server, {words}"), cost.server, "s"));
    if relayed {
        figures.push(Figure::new(
            format!("relay: bytes from the server to the relay, {words}"),
            cost.upstream,
            "bytes",
        ));
        figures.push(Figure::new(format!("relay: CPU of the relay, {words}"), cost.relay, "s"));
    }
}

/// Starts a relay on a machine of its own, which no node uses yet.
fn start_relay(nodes: Nodes) -> Result<Lab> {
    let lab = &nodes.world.lab;
    let direct = lab.record().endpoints.southbound_remote.context("the southbound database has no remote")?;
    let pki = lab::directories::Directories::from_environment()?.lab(lab.name()).join("pki/ovn");
    let file = |name: &str| pki.join(name).display().to_string();
    let program = Program::new("relay", ovnkube()?)
        .on(MACHINE)
        .arguments(["db", "relay", "--upstream", &direct, "--listen", "0.0.0.0", "--port", &PORT.to_string()])
        .arguments(["--metrics-bind-address", "off", "--sb-client-privkey", &file("ovn.key")])
        .arguments(["--sb-client-cert", &file("ovn.crt"), "--sb-client-cacert", &file("ca.crt")])
        .ready_when_logged("the relay is ready");
    lab.run(&program)?;
    let relay = await_child(lab.record().component("relay")?.process.pid)?;
    let record = lab.record();
    let address = record.machine(MACHINE)?.addresses.first().context("the relay's machine has no address")?;
    let host = address.to_string();
    let host = host.split('/').next().unwrap_or(&host).to_owned();
    Ok(Lab { nodes, relay, direct, through: format!("ssl:{host}:{PORT}") })
}

impl Lab {
    /// Runs the work and takes the difference of all counters.
    fn cost(&self, work: impl FnOnce(&Nodes) -> Result<()>) -> Result<Cost> {
        let before = self.now()?;
        work(&self.nodes)?;
        let after = self.now()?;
        Ok(Cost {
            node: after.node - before.node,
            upstream: after.upstream - before.upstream,
            server: after.server - before.server,
            relay: after.relay - before.relay,
        })
    }

    fn now(&self) -> Result<Cost> {
        Ok(Cost {
            node: self.nodes.received()?,
            upstream: received(&self.nodes.world.lab.machine(MACHINE)?)?,
            server: self.nodes.server_cpu()?,
            relay: bench::process_cpu_seconds(self.relay)?,
        })
    }
}
