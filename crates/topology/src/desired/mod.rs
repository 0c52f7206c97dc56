//! What the network owes each object: the same facts, the same answer. One module for each kind of owner.

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
mod policy;
mod retry;
mod selector;
mod service;
mod template;

pub(crate) use admin_policy::{LEVELS_MARK, PRIORITY_MARK, SHARED, UID_MARK};
pub(crate) use cluster::{CLUSTER_GROUP, LOAD_BALANCER_GROUPS, LOGGING_METER, ROUTER, ROUTER_GROUP, SWITCH_GROUP};
pub(crate) use host_port::target as host_port_target;
pub(crate) use node::{NODE_ID_MARK, SUBNET, SUBNET_V6, SWITCH_KEY, check as check_node, holder_of_chassis};
pub(crate) use pod::PORT_KEY;
pub(crate) use policy::denials;
pub(crate) use selector::{join, rows as selector_rows};
pub(crate) use service::{Needs, needs as service_needs, variable_prefix};
pub(crate) use template::{ROW_KEY as VARIABLES_KEY, host_addresses};

use crate::allocation::Allocator;
use crate::contribution::{Aliases, Contribution};
use crate::identity::Owner;
use crate::refusal::Refusal;
use crate::settings::ClusterSettings;
use crate::store::Store;

/// Everything that the answer depends on.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// What the administrator said.
    pub settings: &'a ClusterSettings,
    /// The objects.
    pub store: &'a Store,
    /// Who has which subnet, number and address.
    pub allocator: &'a Allocator,
    /// Rows that were taken over.
    pub aliases: &'a Aliases,
}

/// What the network owes an owner. Nothing if there is no such object, or if it waits for another one.
pub fn desired(owner: &Owner, given: Given<'_>) -> Result<Contribution, Refusal> {
    match owner {
        Owner::Cluster => Ok(cluster::desired(given)),
        Owner::Node(name) => node::desired(name, given),
        Owner::Namespace(name) => Ok(namespace::desired(name, given)),
        Owner::Pod(key) => Ok(pod::desired(key, given)),
        Owner::Selector(words) => Ok(selector::desired(words, given)),
        Owner::Policy(key) => Ok(policy::desired(key, given)),
        Owner::Service(key) => service::desired(key, given),
        Owner::AdminPolicy(_) | Owner::BaselinePolicy(_) => Ok(admin_policy::desired(owner, given)),
        Owner::Adopted => Ok(Contribution::default()),
    }
}

/// How a match names the family's own fields.
fn ip_word(v6: bool) -> &'static str {
    if v6 { "ip6" } else { "ip4" }
}

/// All destinations of a family.
fn everything(v6: bool) -> &'static str {
    if v6 { "::/0" } else { "0.0.0.0/0" }
}
