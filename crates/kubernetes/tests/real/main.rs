//! The crate against a real kube-apiserver. Needs root, for the lab.

// A test that cannot go on says so by a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod calls;
mod common;
mod events;
mod leases;
mod watches;
