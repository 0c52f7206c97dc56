//! The lab's own tests: real components, real packets. They need root; each owns a lab and leaves nothing behind.

// A test that cannot go on says so by a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bad_input;
mod command;
mod faults;
mod kubernetes;
mod light_chassis;
mod network;
mod overlay;
mod program;
mod raft;
mod remains;
mod removal;

/// Longer than anything that works; only what is broken waits for it.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
