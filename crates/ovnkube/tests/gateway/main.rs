//! The node's gateway by real packets: pods, hosts and the outside, over the bridge, flows, filters and routes that the
//! node agent made.
#![allow(clippy::unwrap_used, clippy::panic)]

mod host;
mod packets;
mod restart;
mod site;
mod trouble;
