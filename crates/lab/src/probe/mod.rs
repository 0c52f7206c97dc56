//! The prober: sends numbered packets on many paths in parallel and accounts for each of them.
//!
//! ```text
//!  Plan (paths, echo servers) ──▶ Prober: one thread per network namespace ──▶ PacketLog per path ─┐
//!  rounds: control, fault, control, fault … ──▶ windows, marks ─────────────────────────────────────┼─▶ Report ──▶ table, JSON, SVG
//! ```
//!
//! A busy host loses packets, too. So each window with a fault has a control window of the same length without it, in
//! the same run, and a path passes if the fault cost *not more than the control*.

mod client;
mod netns_runtime;
mod packet;
mod packet_log;
mod plan;
mod report;
mod rounds;
mod server;
mod svg;
mod table;
mod workload;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use client::Client;
use netns_runtime::NetnsRuntime;
use packet_log::{PacketLog, PacketRecord};
pub(crate) use plan::RATE;
pub use plan::{Network, PathSpec, Plan, Protocol, Server};
pub use report::Incident;
pub(crate) use report::Report;
pub(crate) use rounds::{Marks, run_without_fault};
pub use rounds::{Rounds, WindowKind, observe, run, run_confirmed};
pub use workload::Workload;

/// How many packets of each path must be answered before it counts as working.
const MIN_ANSWERS: usize = 5;

/// Sends until it is dropped.
#[derive(Debug)]
pub struct Prober {
    start: Instant,
    paths: Vec<(PathSpec, Arc<PacketLog>)>,
    own: Vec<Network>,
    runtimes: BTreeMap<PathBuf, NetnsRuntime>,
    rate: u32,
}

impl Prober {
    /// Opens all sockets and starts sending.
    pub fn start(plan: &Plan) -> Result<Self> {
        let start = Instant::now();
        let mut runtimes: BTreeMap<PathBuf, NetnsRuntime> = BTreeMap::new();
        let mut own: Vec<Network> = Vec::new();
        let networks = plan.servers.iter().map(|(network, _)| network).chain(plan.paths.iter().map(|path| &path.from));
        for network in networks {
            if !runtimes.contains_key(&network.file) {
                runtimes.insert(network.file.clone(), NetnsRuntime::start(&network.file)?);
                own.extend(network.own.then(|| network.clone()));
            }
        }
        for (network, address) in &plan.servers {
            server::start(&runtimes[&network.file], &network.name, *address)?;
        }
        let weights: u32 = plan.paths.iter().map(|path| path.protocol.weight()).sum();
        let mut paths = Vec::new();
        for (index, spec) in (0..).zip(&plan.paths) {
            let packet_log = Arc::new(PacketLog::default());
            paths.push((spec.clone(), packet_log.clone()));
            let period = Duration::from_secs(1) * weights / (plan.rate.max(1) * spec.protocol.weight());
            let offset = Duration::from_secs(1) * u32::from(index) / plan.rate.max(1);
            let client = Client { index, spec: spec.clone(), packet_log, start, period, offset };
            runtimes[&spec.from.file].spawn(client.run());
        }
        Ok(Self { start, paths, own, runtimes, rate: plan.rate })
    }

    /// Microseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Packets per second, over all paths.
    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathSpec> {
        self.paths.iter().map(|(spec, _)| spec)
    }

    /// Every packet of every path so far, in the order of the plan.
    pub(crate) fn packets(&self) -> Vec<Vec<PacketRecord>> {
        self.paths.iter().map(|(_, packet_log)| packet_log.packets()).collect()
    }

    /// Waits until some packets of every path, sent from now on, are answered; returns the paths for which that did not
    /// happen within the limit.
    pub(crate) fn await_answers(&self, limit: Duration) -> Vec<String> {
        let (since, deadline) = (self.now(), Instant::now() + limit);
        loop {
            let silent = self.paths.iter().filter(|(_, packet_log)| packet_log.answered_since(since) < MIN_ANSWERS);
            let silent: Vec<String> = silent.map(|(spec, _)| spec.name()).collect();
            if silent.is_empty() || Instant::now() >= deadline {
                return silent;
            }
            // Other threads write the logs; there is no event.
            if crate::interrupt::sleep(Duration::from_millis(20)).is_err() {
                return silent;
            }
        }
    }

    /// Like [`Prober::await_answers`], with an error that names the silent paths.
    pub(crate) fn await_ready(&self, limit: Duration) -> Result<()> {
        let silent = self.await_answers(limit);
        crate::interrupt::check()?;
        if silent.is_empty() {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "no answers within {} s on {} of {} paths, so nothing can be measured: {}; `lab matrix` shows what is reachable",
            limit.as_secs(),
            silent.len(),
            self.paths.len(),
            silent.join("; ")
        )))
    }

    /// TCP segments retransmitted so far in each network that only the prober uses, by name.
    pub(crate) fn retransmitted(&self) -> Result<BTreeMap<String, u64>> {
        let count = |network: &Network| {
            let netns_runtime = self.runtimes.get(&network.file)?;
            Some(netns_runtime.retransmitted().map(|count| (network.name.clone(), count)))
        };
        self.own.iter().filter_map(count).collect()
    }
}

#[cfg(test)]
mod tests;
