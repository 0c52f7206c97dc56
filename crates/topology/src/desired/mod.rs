//! The desired state: the rows of each owner, as a pure function of the facts and allocations. A module for each kind of
//! owner.

mod admin_policy;
mod balancer;
mod bandwidth;
mod blocked;
mod cluster;
mod gateway;
mod host_port;
mod namespace;
mod node;
mod pod;
mod policing;
mod policy;
mod retransmit;
mod selector;
mod service;
mod template;

pub(crate) use admin_policy::{LEVELS_MARK, PRIORITY_MARK, SHARED, UID_MARK};
pub use cluster::{CLUSTER_GROUP, ROUTER_GROUP, SWITCH_GROUP};
pub(crate) use cluster::{LOAD_BALANCER_GROUPS, LOGGING_METER, ROUTER};
pub use host_port::target as host_port_target;
use netmodel::Family;
pub(crate) use node::{NODE_ID_MARK, SUBNET, SUBNET_V6, SWITCH_KEY, check as check_node, holder_of_chassis};
pub use pod::PORT_KEY;
pub(crate) use policing::LIMIT_SUFFIX;
pub(crate) use policy::denials;
pub(crate) use selector::{join, rows as selector_rows};
pub(crate) use service::{Needs, needs as service_needs, variable_prefix};
pub use template::{ROW_KEY as VARIABLES_KEY, host_addresses};

use crate::allocation::Allocator;
use crate::contribution::{Aliases, Contribution};
use crate::identity::Owner;
use crate::refusal::Refusal;
use crate::settings::ClusterSettings;
use crate::store::Store;

/// What a desired-state function may read.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The cluster-wide settings, with the server's features.
    pub settings: &'a ClusterSettings,
    /// The facts of all objects.
    pub store: &'a Store,
    /// Allocated subnets, node IDs and addresses.
    pub allocator: &'a Allocator,
    /// Adopted rows.
    pub aliases: &'a Aliases,
}

/// The rows and members of an owner: empty if its object does not exist or waits for another; an error if nothing of it
/// can be applied.
pub fn desired(owner: &Owner, inputs: Inputs<'_>) -> Result<Contribution, Refusal> {
    match owner {
        Owner::Cluster => Ok(cluster::desired(inputs)),
        Owner::Node(name) => node::desired(name, inputs),
        Owner::Namespace(name) => Ok(namespace::desired(name, inputs)),
        Owner::Pod(key) => Ok(pod::desired(key, inputs)),
        Owner::Selector(words) => Ok(selector::desired(words, inputs)),
        Owner::Policy(key) => Ok(policy::desired(key, inputs)),
        Owner::Service(key) => service::desired(key, inputs),
        Owner::AdminPolicy(_) | Owner::BaselinePolicy(_) => Ok(admin_policy::desired(owner, inputs)),
        Owner::Adopted => Ok(Contribution::default()),
    }
}

/// The protocol name of a family in a match.
fn ip_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip4",
        Family::V6 => "ip6",
    }
}
