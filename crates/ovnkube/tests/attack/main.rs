//! Attacks on the Kubernetes API, with real tokens of the accounts in `deploy/` and real requests: what one node's credentials, the
//! controller's credentials and a tenant's can write. The results are tables in `docs/security.md`.
#![allow(clippy::unwrap_used, clippy::panic)]

mod accounts;
mod api;
mod certificates;
#[allow(dead_code)]
#[path = "../controller/cluster.rs"]
mod cluster;
#[allow(dead_code)]
#[path = "../controller/inspect.rs"]
mod inspect;
mod matrix;
mod report;
mod signer;
mod site;
mod southbound;
mod tenant;
