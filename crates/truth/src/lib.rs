//! An independent evaluation of Kubernetes' network policies and Services, written naively from the API's documentation;
//! for tests only.
//!
//! ```text
//!  API objects (JSON) ──Cluster::from_objects──▶ Cluster ──verdict(from, to, protocol, port, family)──▶ allowed? why
//!          ▲                                        └─────service(from, ns/name, …)──▶ endpoints that may be chosen
//!   random::objects(seed)                                         ▲
//!                       random::tuples(cluster, seed, n) ─────────┘
//! ```
//!
//! The product computes sets, groups and priorities, and updates them incrementally. This crate does none of that: for every
//! query it walks over all objects and reads the rules one by one, so that each function can be compared with the sentence of
//! the documentation that it implements. It shares no code with the product (`make check` enforces it), so that a mistake in
//! one is not a mistake in both.
//!
//! A verdict is about the first packet of a connection; replies follow their connection. Traffic must pass the egress
//! policies of its source and the ingress policies of its destination. Each direction evaluates, in this order:
//! AdminNetworkPolicies, NetworkPolicies, the BaselineAdminNetworkPolicy; the default is to allow.

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
pub use end::TrafficEnd;
pub use error::Error;
pub use objects::Protocol;
pub use service::{Endpoint, Service};
pub use verdict::Verdict;
