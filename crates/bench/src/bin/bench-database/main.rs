//! `bench-database`: what OVN's databases and the whole control plane cost: CPU, memory, disk, traffic to the nodes.
//! Writes `target/bench/database.json`.
//!
//! ```text
//!  small lab  (1,000 pods, 20 nodes)   ─▶ control plane · bytes on disk of each object ─▶ formula ─┐
//!  middle lab (5,000 pods, 100 nodes)  ─▶ control plane · bytes on disk ──────────────────────────┴▶ predicted | measured
//!  sync       (one member)             ─▶ commit latency on a fast, this and a slow disk
//!  relay      (real ovn-controllers)   ─▶ bytes to a node, CPU of the server | with relay | monitor-all on and off
//! ```
//!
//! All servers are real. In the first two labs the databases are those of `ovnkube db serve`, one member each, and nodes are
//! objects and light chassis. The fourth has real ovn-controllers.

mod disk;
mod managed;
mod measure;
mod nodes;
mod options;
mod plane;
mod relay;
mod shared;
mod slow_disk;
mod sync;

use shared::{controller, object_watch, objects, quantile, rows, workload, world};

use anyhow::Result;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    measure::run(&options::Options::read(&words)?)
}
