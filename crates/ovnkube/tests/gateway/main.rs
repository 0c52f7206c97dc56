//! The node's gateway by real packets: pods, hosts and the outside, over the bridge, flows, filters and routes that the
//! node agent made.

mod packets;
mod site;
