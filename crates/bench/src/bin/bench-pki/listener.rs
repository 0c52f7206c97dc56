//! What the listener for nodes costs: the same load through it and by the port without it, in turn, on one server.

use anyhow::{Context, Result};
use bench::Figure;
use lab::Program;
use ovsdb::client::Client;

use crate::nodes::Nodes;
use crate::sessions::Sessions;
use crate::site::{Site, TIMEOUT, ovnkube};
use crate::tls::median;

/// Nodes that see each change.
const SESSIONS: usize = 100;
/// Transactions of one run.
const TRANSACTIONS: u64 = 200;
/// Runs of each way.
const RUNS: usize = 5;
const HOST: &str = "10.99.0.1";
const NODES: &str = "ssl:10.99.0.1:7642";
const CONTROL: &str = "ssl:10.99.0.1:7646";
const COMPONENT: &str = "listener";

/// A manager of a southbound member with a listener for nodes.
pub(crate) struct Listener {
    manager: u32,
    server: u32,
}

impl Listener {
    /// Starts it, unless it runs, and waits until it serves a node and a client that is none.
    pub(crate) fn start(site: &Site, nodes: &Nodes) -> Result<Self> {
        site.inside(async |api| nodes.copy_bundle(&api).await)?;
        let starts = site.pid(COMPONENT).is_err();
        if starts {
            let control = site.control()?;
            control.run(&["mkdir", "-p", "/var/lib/listener", "/run/listener"])?;
            let tls = site.tls();
            let program = Program::new(COMPONENT, ovnkube()?)
                .arguments(["db", "serve", "sb", "--host", HOST, "--peers", HOST, "--namespace", "default"])
                .arguments(["--data-dir", "/var/lib/listener", "--run-dir", "/run/listener"])
                .arguments(["--port", "7642", "--raft-port", "7644", "--metrics-bind-address", "off"])
                .arguments([format!("--node-authorities={}", nodes.bundle().display())])
                .arguments([format!("--sb-client-privkey={}", tls.private_key.display())])
                .arguments([format!("--sb-client-cert={}", tls.certificate.display())])
                .arguments([format!("--sb-client-cacert={}", tls.authorities.display())]);
            site.lab.run(&program)?;
        }
        let manager = site.pid(COMPONENT)?;
        let database = "--db=unix:/run/listener/ovnsb_db.sock";
        lab::poll(TIMEOUT, || {
            site.control()?.run(&["ovn-sbctl", "--timeout=10", database, "init"]).map_err(anyhow::Error::from)
        })?;
        // Only now: before, its child may be a tool that creates the file.
        let server = child(manager).context("ovsdb-server does not run")?;
        if starts {
            // As ovn-northd does; without it the port for nodes stays closed.
            site.control()?.run(&["ovn-sbctl", database, "create", "RBAC_Role", "name=ovn-controller"])?;
        }
        let listener = Self { manager, server };
        site.inside(async |_| {
            Sessions::of(vec![listener.node(site, nodes, 0)?, listener.control(site)?]).await.map(drop)
        })?;
        Ok(listener)
    }

    pub(crate) fn node(&self, site: &Site, nodes: &Nodes, number: usize) -> Result<Client> {
        Site::session(NODES, nodes.tls(site, number))
    }

    fn control(&self, site: &Site) -> Result<Client> {
        Site::session(CONTROL, site.tls())
    }

    /// CPU seconds of manager and server.
    fn cpu(&self) -> Result<f64> {
        Ok(bench::process_cpu_seconds(self.manager)? + bench::process_cpu_seconds(self.server)?)
    }
}

/// The first child of a process.
fn child(process: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// One run; medians of [`RUNS`] are reported.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// CPU for opening all sessions, in milliseconds for each.
    connecting: f64,
    /// CPU, in microseconds for each session that sees a transaction.
    update: f64,
    /// Median milliseconds until all sessions have seen a transaction.
    seen: f64,
}

pub(crate) fn figures(site: &Site, nodes: &Nodes, figures: &mut Vec<Figure>) -> Result<()> {
    let sessions = SESSIONS.min(nodes.count);
    eprintln!(
        "{TRANSACTIONS} transactions that {sessions} sessions see, through the listener for nodes and without it"
    );
    let listener = Listener::start(site, nodes)?;
    let idle = bench::process_memory(listener.manager)?;
    let (mut through, mut direct, mut used) = (Vec::new(), Vec::new(), 0.0_f64);
    let mut number = 0;
    for _ in 0..RUNS {
        for (is_node, runs) in [(true, &mut through), (false, &mut direct)] {
            number += 1;
            let (run, memory) = measure(site, &listener, nodes, sessions, is_node, number)?;
            eprintln!("  {} {run:?}", if is_node { "listener" } else { "direct" });
            runs.push(run);
            if is_node {
                used = used.max(memory);
            }
        }
    }
    for (what, unit, of) in [
        ("CPU to accept a session", "ms", (|run| run.connecting) as fn(&Run) -> f64),
        ("CPU for a session that sees a transaction", "µs", |run| run.update),
        ("latency until all sessions have seen a transaction, median", "ms", |run| run.seen),
    ] {
        let [through, direct] = [&through, &direct].map(|runs| median(runs.iter().map(of).collect()));
        let figure = |way: &str, value, unit| Figure::new(format!("listener for nodes: {what}, {way}"), value, unit);
        figures.push(figure("through it", through, unit));
        figures.push(figure("without it", direct, unit));
        figures.push(figure("through it against without", through / direct, "×"));
    }
    let each = (used - idle.resident) * 1e3 / sessions as f64;
    figures.push(Figure::new("listener for nodes: RSS of the manager for each session", each, "KB"));
    Ok(())
}

fn measure(
    site: &Site,
    listener: &Listener,
    nodes: &Nodes,
    count: usize,
    is_node: bool,
    round: u64,
) -> Result<(Run, f64)> {
    site.inside(async |_| {
        let mut writer = Sessions::of(vec![listener.control(site)?]).await?;
        let before = listener.cpu()?;
        let client = |number| if is_node { listener.node(site, nodes, number) } else { listener.control(site) };
        let mut sessions = Sessions::of((0..count).map(client).collect::<Result<_>>()?).await?;
        let opened = listener.cpu()?;
        let mut seen = Vec::new();
        for number in 0..TRANSACTIONS {
            let (_, last) = writer.write_seen_by(&mut sessions, round * 1_000_000 + number).await?;
            seen.push(last * 1e3);
        }
        let updates = TRANSACTIONS as f64 * count as f64;
        let run = Run {
            connecting: (opened - before) * 1e3 / count as f64,
            update: (listener.cpu()? - opened) * 1e6 / updates,
            seen: median(seen),
        };
        let memory = bench::process_memory(listener.manager)?.resident;
        Ok((run, memory))
    })
}
