//! The client against real servers: what it does, and what it survives. Needs root, for the lab.

// A test that cannot go on says so by a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod basics;
mod common;
mod impostors;
mod middleman;
mod raft;
mod storm;
mod tls;
mod wire;
