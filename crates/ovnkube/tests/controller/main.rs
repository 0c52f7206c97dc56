//! The controller against real components: kube-apiserver, ovsdb-servers, northd, ovn-controllers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod admin_policies;
mod api_door;
mod bad_input;
mod bad_policies;
mod bad_services;
mod churn;
mod cluster;
mod crowd;
mod door;
mod guarded;
mod leadership;
mod lessons_connection;
mod lessons_consistency;
mod lessons_objects;
mod lessons_policies;
mod local_gateway;
mod looking;
mod migration;
mod nodes;
mod packets;
mod plan;
mod policies;
mod policies_edges;
mod prober;
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
mod truth_table;
mod webhook;
mod wishes;
