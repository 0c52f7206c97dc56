//! `ovnkube db relay` with real databases and ovn-controllers: failover, readiness, access control, bad input.
#![allow(clippy::unwrap_used, clippy::panic)]

mod access;
mod bad_input;
#[allow(dead_code)]
#[path = "../controller/cluster.rs"]
mod cluster;
mod failover;
mod nodes;
mod readiness;
mod site;
