//! The controller against real components: kube-apiserver, ovsdb-servers, northd, ovn-controllers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;
mod door;
mod lessons_connection;
mod lessons_consistency;
mod packets;
mod startup;
mod states;
