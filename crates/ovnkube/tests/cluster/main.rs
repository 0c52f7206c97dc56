//! Real clusters with ovnkube installed from `deploy/`: connectivity, upgrades and manifests.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod conformance;
mod databases;
mod disruption;
mod intruder;
mod lost_databases;
mod manifests;
mod matrix;
#[path = "../../../lab/tests/lab/remains.rs"]
mod remains;
mod upgrade;
