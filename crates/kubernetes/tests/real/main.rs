//! The crate against a real kube-apiserver. Needs root, for the lab.

#![allow(clippy::unwrap_used, clippy::panic)]

mod calls;
mod common;
mod events;
mod leases;
mod watches;
