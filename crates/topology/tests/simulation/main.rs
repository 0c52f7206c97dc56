//! Controllers, the API and the database, simulated from a seed: what happens and what goes wrong follows from it, and a
//! seed that fails fails again.
//!
//! `SIMULATION_SEED=n` plays one seed alone, with `SIMULATION_TRACE=1` told step by step; `SIMULATION_SEEDS=n` plays so many.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod drift;
mod labels;
mod seeds;
mod story;
mod verdict;
