//! The node agent against real components: kube-apiserver, the controller, ovsdb-servers, northd, ovn-controllers, Open
//! vSwitch, and network namespaces as sandboxes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod agent;
mod bad_input;
mod capabilities;
mod certificate;
#[allow(dead_code)]
#[path = "../controller/cluster.rs"]
mod cluster;
mod concurrency;
mod evidence;
mod failures;
mod forged_subnets;
mod frames;
mod host_ports;
#[allow(dead_code)]
#[path = "../controller/inspect.rs"]
mod inspect;
mod isolation;
mod leftovers;
mod networks;
mod remote;
mod repair;
mod request_paths;
mod sandbox;
mod site;
mod wiring;
