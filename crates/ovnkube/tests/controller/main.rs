//! The controller against real components: kube-apiserver, ovsdb-servers, northd, ovn-controllers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod admin_policies;
mod bad_input;
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
mod services;
mod startup;
mod states;
mod trace;
mod tracer;
mod truth_table;
mod webhook;
