//! Random small clusters as API objects, and random queries.
//!
//! ```text
//!  Rng ─▶ pods ─▶ (a test may allocate real addresses) ─▶ policies, services ─▶ Cluster ─▶ tuples
//! ```
//!
//! Values come from small vocabularies, so that selectors, names and ports match often; all objects are valid for an API
//! server.

mod admin_policies;
mod blocks;
mod exposed;
mod network_policies;
mod pods;
mod rng;
mod services;
mod tuples;
mod vocabulary;

use serde_json::Value;

use crate::address::Family;

pub use exposed::{api_server_slice, expose};
pub use network_policies::network_policies;
pub use pods::pods;
pub use rng::Rng;
pub use services::services;
pub use tuples::{ServiceTuple, Tuple, service_tuples, tuples};

/// The contents of a random cluster.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Families of the addresses, IPv4 first; not empty.
    pub families: &'static [Family],
    /// AdminNetworkPolicies, and in half of the clusters a BaselineAdminNetworkPolicy.
    pub admin: bool,
    /// Services, each with the EndpointSlices of its pods.
    pub services: bool,
}

impl Options {
    /// Dual-stack, with all kinds of objects.
    pub fn everything() -> Self {
        Self { families: &[Family::V4, Family::V6], admin: true, services: true }
    }

    /// IPv4, with NetworkPolicies only.
    pub fn plain() -> Self {
        Self { families: &[Family::V4], admin: false, services: false }
    }
}

/// All objects of a cluster, in an order in which they can be created.
pub fn objects(rng: &mut Rng, options: Options) -> Vec<Value> {
    let mut objects = pods(rng, options);
    let policies = policies(rng, options, &objects);
    let services = if options.services { services(rng, &objects) } else { Vec::new() };
    objects.extend(policies);
    objects.extend(services);
    objects
}

/// Policies of the selected kinds, for these namespaces, nodes and pods.
pub fn policies(rng: &mut Rng, options: Options, objects: &[Value]) -> Vec<Value> {
    let mut policies = network_policies(rng, objects);
    if options.admin {
        policies.extend(admin_policies::admin_policies(rng, objects));
    }
    policies
}
