//! The node's gateway by packets: pods, hosts and the outside, over the agent's bridge, flows, filters and routes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod affinity;
mod bridge_change;
#[allow(dead_code)]
#[path = "../controller/cluster.rs"]
mod cluster;
mod host;
mod misconfiguration;
#[path = "../node/networks.rs"]
mod networks;
mod packets;
mod punts;
mod restart;
mod site;
mod sizes;
mod unserved;
