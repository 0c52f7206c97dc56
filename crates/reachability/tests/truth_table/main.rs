//! The truth table: for random clusters, what `can` says of a packet is what the API's documentation says, as `truth`
//! reads it. Everything is drawn from a seed, one for each cluster.
//!
//! `TRUTH_SEED=n` asks about one cluster alone; `TRUTH_CLUSTERS=n` about so many, from the first on. `docs/truth-table.md`
//! tells what to do with a seed that failed. The same questions are put to `ovn-trace` by ovnkube's `truth_table`.
#![allow(clippy::unwrap_used, clippy::panic)]

mod networks;
mod table;
mod world;
