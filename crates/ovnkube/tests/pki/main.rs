//! OVN's certificates with real servers and clients: hosted clusters behind one router, damaged and expired files, a rotation
//! of the CA over raft members, and certificates that nodes request.
#![allow(clippy::unwrap_used, clippy::panic)]

mod files;
mod nodes;
mod raft;
mod router;
mod signer;
mod site;
