//! The controller against real components: kube-apiserver, ovsdb-servers, northd, ovn-controllers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;
mod packets;
mod startup;
mod trace;
