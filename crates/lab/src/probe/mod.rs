//! The prober: numbered packets on many paths at once, and what became of each of them.
//!
//! ```text
//!  Plan (paths, echo servers) ──▶ Prober: one thread per network namespace ──▶ Ledger per path ─┐
//!  rounds: control, fault, control, fault … ──▶ windows, marks ────────────────────────────────┼─▶ Report ──▶ table, JSON, SVG
//! ```
//!
//! A machine that is busy loses packets, too. So nothing is judged alone: each window with a fault has a control of the same
//! length without it, in the same run, and a path passes if the fault cost *not more than the control*.

mod client;
mod ledger;
mod packet;
mod plan;
mod report;
mod rounds;
mod server;
mod station;
mod svg;
mod table;
mod workload;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use client::Client;
pub use client::LOST_AFTER;
pub use ledger::Entry;
use ledger::Ledger;
pub use plan::{Network, PathSpec, Plan, Protocol, RATE, Server};
pub use report::{Counts, Happening, Incident, LATE_AFTER, PathReport, Report};
pub use rounds::{Kind, Mark, Marks, Rounds, Window, confirmed, run, run_without_fault};
use station::Station;
pub use workload::Workload;

/// How many packets of each path must be answered until it counts as working.
const WARM: usize = 5;

/// A running prober. It ends with this value.
#[derive(Debug)]
pub struct Prober {
    start: Instant,
    paths: Vec<(PathSpec, Arc<Ledger>)>,
    own: Vec<Network>,
    stations: BTreeMap<PathBuf, Station>,
    rate: u32,
}

impl Prober {
    /// Opens all sockets and starts sending.
    pub fn start(plan: &Plan) -> Result<Self> {
        let start = Instant::now();
        let mut stations: BTreeMap<PathBuf, Station> = BTreeMap::new();
        let mut own: Vec<Network> = Vec::new();
        let networks = plan.servers.iter().map(|(network, _)| network).chain(plan.paths.iter().map(|path| &path.from));
        for network in networks {
            if !stations.contains_key(&network.file) {
                stations.insert(network.file.clone(), Station::enter(&network.file)?);
                own.extend(network.own.then(|| network.clone()));
            }
        }
        for (network, address) in &plan.servers {
            server::start(&stations[&network.file], &network.name, *address)?;
        }
        let weights: u32 = plan.paths.iter().map(|path| path.protocol.weight()).sum();
        let mut paths = Vec::new();
        for (index, spec) in (0..).zip(&plan.paths) {
            let ledger = Arc::new(Ledger::default());
            paths.push((spec.clone(), ledger.clone()));
            let period = Duration::from_secs(1) * weights / (plan.rate.max(1) * spec.protocol.weight());
            let offset = Duration::from_secs(1) * u32::from(index) / plan.rate.max(1);
            let client = Client { index, spec: spec.clone(), ledger, start, period, offset };
            stations[&spec.from.file].spawn(client.run());
        }
        Ok(Self { start, paths, own, stations, rate: plan.rate })
    }

    /// Microseconds since it started.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Packets per second in sum.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// The paths, as planned.
    pub fn paths(&self) -> impl Iterator<Item = &PathSpec> {
        self.paths.iter().map(|(spec, _)| spec)
    }

    /// What became of every number of every path so far, in the order of the plan.
    pub fn entries(&self) -> Vec<Vec<Entry>> {
        self.paths.iter().map(|(_, ledger)| ledger.entries()).collect()
    }

    /// Waits until some packets of every path were answered that were sent from now on; else, returns the paths of which none
    /// were within the limit.
    pub fn await_answers(&self, limit: Duration) -> Vec<String> {
        let (since, deadline) = (self.now(), Instant::now() + limit);
        loop {
            let silent = self.paths.iter().filter(|(_, ledger)| ledger.answered_since(since) < WARM);
            let silent: Vec<String> = silent.map(|(spec, _)| spec.name()).collect();
            if silent.is_empty() || Instant::now() >= deadline {
                return silent;
            }
            // The ledgers are written from other threads at any time; nobody announces a number.
            if crate::interrupt::sleep(Duration::from_millis(20)).is_err() {
                return silent;
            }
        }
    }

    /// Like [`Prober::await_answers`], with an error that names the silent paths.
    pub fn await_ready(&self, limit: Duration) -> Result<()> {
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

    /// TCP segments sent again so far in each network that only the prober uses, by name.
    pub fn retransmitted(&self) -> Result<BTreeMap<String, u64>> {
        let count = |network: &Network| {
            let station = self.stations.get(&network.file)?;
            Some(station.retransmitted().map(|count| (network.name.clone(), count)))
        };
        self.own.iter().filter_map(count).collect()
    }
}

#[cfg(test)]
mod tests;
