//! The truth table: for random clusters, the evaluator's verdict about a packet is that of the API's documentation, as
//! `truth` reads it. Everything is drawn from a seed, one for each cluster.
//!
//! `TRUTH_SEED=n` checks one cluster; `TRUTH_CLUSTERS=n` the first n. `docs/truth-table.md` says what to do with a failed
//! seed. ovnkube's `truth_table` compares with `ovn-trace` as well.
#![allow(clippy::unwrap_used, clippy::panic)]

mod networks;
mod table;
mod world;
