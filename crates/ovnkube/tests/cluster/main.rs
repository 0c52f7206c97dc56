//! A real cluster whose only network is ours, put there from `deploy/` as people do: who reaches whom, by packets.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod conformance;
mod disruption;
mod intruder;
mod lost_databases;
mod manifests;
mod matrix;
#[path = "../../../lab/tests/lab/remains.rs"]
mod remains;
mod upgrade;
