//! Watches and leader election against a scripted server with rare failures.

#![allow(clippy::unwrap_used, clippy::panic)]

mod leases;
mod server;
mod watches;
