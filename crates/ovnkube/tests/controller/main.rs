//! The controller against real components: kube-apiserver, ovsdb-servers, northd, ovn-controllers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bad_input;
mod bad_services;
mod cluster;
mod door;
mod leadership;
mod lessons_connection;
mod lessons_consistency;
mod lessons_objects;
mod looking;
mod migration;
mod nodes;
mod packets;
mod plan;
mod random_objects;
mod rows;
// What is written down on the spot is passed as it is.
#[allow(clippy::needless_pass_by_value)]
mod service_endpoints;
mod service_ranges;
mod services;
mod startup;
mod states;
mod trace;
mod tracer;
mod webhook;
