//! The client against real servers: what it does, and what it survives. Needs root, for the lab.

#![allow(clippy::unwrap_used, clippy::panic)]

mod basics;
mod common;
mod failover;
mod impostors;
mod middleman;
mod raft;
mod storm;
mod tls;
mod wire;
