//! The node agent against real components: kube-apiserver, our controller, ovsdb-servers, northd, ovn-controllers, Open
//! vSwitch, and namespaces that stand for sandboxes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod agent;
mod bad_input;
#[allow(dead_code)]
#[path = "../controller/cluster.rs"]
mod cluster;
mod crowd;
mod evidence;
mod frames;
mod host_ports;
mod isolation;
mod leftovers;
#[allow(dead_code)]
#[path = "../controller/looking.rs"]
mod looking;
mod networks;
mod remote;
mod repair;
mod sandbox;
mod site;
mod trouble;
mod wiring;
