//! `bench-failover`: how long a pod that is created right after a fault waits for its network. Writes
//! `target/bench/failover.json`.
//!
//! ```text
//!  fault ─▶ pod created ─▶ controller ─▶ NB ─▶ northd ─▶ SB ─▶ ovn-controller ─▶ pod Ready
//!  └───────────────────────────── one measurement ─────────────────────────────────────┘
//! ```
//!
//! All is real: three control-plane nodes with databases and controllers in pods, two workers with kubelets. The pods are
//! created on a worker; the prober's connections are between the workers. Nothing is subtracted: the time of a pod without
//! any fault is a figure of its own.

mod cluster;
mod fault;
mod measure;
mod northd;
mod options;
mod samples;

use anyhow::Result;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    measure::run(&options::Options::read(&words)?)
}
