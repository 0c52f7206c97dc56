//! What Kubernetes says of a packet, written naively from the API's documentation: a second opinion, for tests only.
//!
//! ```text
//!  API objects (JSON) ──Cluster::from_objects──▶ Cluster ──verdict(from, to, protocol, port, family)──▶ allowed? why
//!          ▲                                        └─────service(from, ns/name, …)──▶ endpoints that may be chosen
//!   random::objects(seed)                                         ▲
//!                       random::tuples(cluster, seed, n) ─────────┘
//! ```
//!
//! The product computes sets, groups and priorities, and keeps them up to date. This crate does none of that: for every
//! question it walks over all objects as they are written and reads the rules one by one, so that each function can be
//! held against the sentence of the documentation that it stands for. It shares no code with the product (`make check`
//! sees to it), so that a mistake in one is not a mistake in both.
//!
//! A verdict is about the first packet of a connection; replies follow their connection. Traffic goes through two
//! gates: egress of its source and ingress of its destination, and both have to let it through. A gate asks, in this
//! order: AdminNetworkPolicies, NetworkPolicies, the BaselineAdminNetworkPolicy; what nobody speaks of is allowed.

mod address;
mod admin;
mod cluster;
mod end;
mod error;
mod network_policy;
mod objects;
pub mod random;
mod selector;
mod service;
mod verdict;

pub use address::Family;
pub use cluster::Cluster;
pub use end::Place;
pub use error::Error;
pub use objects::Protocol;
pub use service::{Endpoint, Service};
pub use verdict::Verdict;
