//! Controllers, the API and the database, simulated with random changes and faults; a seed replays a run exactly.
//!
//! `SIMULATION_SEED=n` runs one seed, with `SIMULATION_TRACE=1` it prints every step; `SIMULATION_SEEDS=n` runs this many.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod drift;
mod labels;
mod oracle;
mod scenario;
mod seeds;
