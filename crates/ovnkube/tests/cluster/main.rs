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
mod node_credentials;
mod permissions;
mod pod_attack;
mod pod_frames;
mod pod_reach;
mod relays;
#[path = "../../../lab/tests/lab/remains.rs"]
mod remains;
#[allow(dead_code, reason = "another test program uses the rest")]
#[path = "../attack/report.rs"]
mod report;
mod rotation;
mod sniffer;
mod upgrade;
mod writer;
