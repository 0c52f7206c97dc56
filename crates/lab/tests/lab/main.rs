//! The lab's integration tests: real components, real packets. They need root; each owns a lab and leaves nothing
//! behind.

// Tests fail by a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bad_input;
mod command;
mod faults;
mod kubernetes;
mod light_chassis;
mod names;
mod network;
mod overlay;
mod program;
mod raft;
mod remains;
mod removal;
mod volumes;

/// Longer than anything that works takes.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
