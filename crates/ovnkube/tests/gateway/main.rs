//! The node's gateway by real packets: pods, hosts and the outside, over the bridge, flows, filters and routes that the
//! node agent made.
#![allow(clippy::unwrap_used, clippy::panic)]

mod affinity;
mod another_bridge;
#[allow(dead_code)]
#[path = "../controller/cluster.rs"]
mod cluster;
mod host;
#[path = "../node/networks.rs"]
mod networks;
mod packets;
mod refused;
mod restart;
mod site;
mod sizes;
mod trouble;
