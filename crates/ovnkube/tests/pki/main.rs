//! OVN's certificates with real servers and clients: hosted clusters behind one router, damaged and expired files, and a rotation
//! of the CA over raft members.
#![allow(clippy::unwrap_used, clippy::panic)]

mod files;
mod raft;
mod router;
mod signer;
mod site;
