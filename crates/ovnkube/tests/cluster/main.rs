//! Real clusters with ovnkube installed from `deploy/`: connectivity, upgrades and manifests.
#![allow(clippy::unwrap_used, clippy::panic)]

mod active_backup;
mod common;
mod conformance;
mod databases;
mod disruption;
mod hosted;
mod intruder;
mod lost_databases;
mod manifests;
mod matrix;
mod members;
mod permissions;
mod relays;
#[path = "../../../lab/tests/lab/remains.rs"]
mod remains;
mod rotation;
mod upgrade;
mod writer;
