//! Controllers, the API and the database, simulated from a seed: what happens and what goes wrong follows from it, and a
//! seed that fails fails again.
//!
//! `SIMULATION_SEED=n` plays one seed alone, with `SIMULATION_TRACE=1` told step by step; `SIMULATION_SEEDS=n` plays so many.
#![allow(clippy::unwrap_used, clippy::panic)]

mod api;
mod controller;
mod database;
mod faults;
mod labels;
mod policies;
mod rng;
mod schema;
mod seeds;
mod services;
mod story;
mod verdict;
