//! Allocation of subnets, node IDs, addresses and MACs. A stage of its own, before the desired state, because it depends on
//! history; its results are recorded on the objects.
//!
//! ```text
//!  record on the object ─▶ honoured        row in the database ─▶ honoured (crash before the record was written)
//!  request ─▶ honoured or refused          none of these ─▶ a free one
//! ```
//!
//! A node's record is its annotations; a pod's is a condition of its status, since tenants may write its annotations.
//!
//! Invariants: nothing is allocated twice; an allocation stays; a record is honoured or refused, never changed; what is
//! released is free again only when every node has acknowledged that its rows are gone ([`Quarantine`]).

mod node;
mod pod;
mod quarantine;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use netmodel::{AddressPool, Family, IdPool, Mac, Prefix, SubnetPool, SubnetPoolError};
use objects::{Name, PodKey, PodNetwork};

pub use node::KnownNode;
pub use pod::KnownPort;
pub(crate) use pod::PodState;
pub use quarantine::{Allocatable, Quarantine};

use crate::identity::Owner;
use crate::settings::{ClusterSettings, FIRST_NODE_ID};

/// Node ID and subnets of a node, with the addresses taken there.
#[derive(Debug, Clone)]
pub struct NodeAllocation {
    /// UID of the node: a recreated one of the same name has another.
    pub uid: Name,
    /// Unique in the cluster, from 2; the node's join addresses follow from it.
    pub id: u32,
    /// A pool for each of its subnets, IPv4 first.
    pools: Vec<AddressPool>,
}

impl NodeAllocation {
    /// IPv4 first.
    pub fn subnets(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.pools.iter().map(AddressPool::subnet)
    }

    /// The node's subnet that contains the address; none if it is not one of the node.
    pub fn subnet_of(&self, address: IpAddr) -> Option<Prefix> {
        self.subnets().find(|subnet| subnet.contains(address))
    }

    fn taken(&self) -> u128 {
        self.pools.iter().map(AddressPool::taken).sum()
    }
}

/// MAC and addresses of a pod, which it keeps for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAllocation {
    /// UID of the pod: a recreated one of the same name has another.
    pub uid: Name,
    /// The node whose subnets contain its addresses.
    pub node: Name,
    /// MAC of its port: requested by the pod, or derived from its first address.
    pub mac: Mac,
    /// One or two addresses, IPv4 first.
    addresses: [Option<IpAddr>; 2],
}

impl PodAllocation {
    /// IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().copied().flatten()
    }

    /// Whether a recorded network equals the allocation.
    pub fn is(&self, network: &PodNetwork) -> bool {
        let mut said: Vec<IpAddr> = network.addresses.iter().map(|address| address.address()).collect();
        said.sort_by_key(|address| Family::of(*address));
        network.mac == self.mac && said.into_iter().eq(self.addresses())
    }
}

/// Subnets, node IDs, addresses and MACs of all nodes and pods. No two objects have the same one.
#[derive(Debug, Clone)]
pub struct Allocator {
    /// IPv4, then IPv6; none if the cluster has no network of that family.
    subnets: [Option<SubnetPool>; 2],
    ids: IdPool,
    nodes: BTreeMap<Name, NodeAllocation>,
    pods: BTreeMap<Arc<PodKey>, PodAllocation>,
    /// MACs that are not derived from an address, and so could collide.
    custom_macs: BTreeMap<(Name, Mac), Arc<PodKey>>,
    quarantine: Quarantine,
}

impl Allocator {
    /// Without any allocation; an error if the cluster networks cannot be divided into subnets.
    pub fn new(settings: &ClusterSettings) -> Result<Self, SubnetPoolError> {
        let pool = |family: Family| {
            let cidrs: Vec<_> = settings.cluster.iter().copied().filter(|cidr| cidr.cidr.family() == family).collect();
            (!cidrs.is_empty()).then(|| SubnetPool::new(&cidrs)).transpose()
        };
        Ok(Self {
            subnets: [pool(Family::V4)?, pool(Family::V6)?],
            ids: IdPool::new(FIRST_NODE_ID..=settings.last_node_id()),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            custom_macs: BTreeMap::new(),
            quarantine: Quarantine::default(),
        })
    }

    /// None if nothing is allocated to a node of this name, or it was released.
    pub fn node(&self, name: &str) -> Option<&NodeAllocation> {
        self.nodes.get(name)
    }

    /// None if nothing is allocated to the pod, or it was released.
    pub fn pod(&self, key: &PodKey) -> Option<&PodAllocation> {
        self.pods.get(key)
    }

    /// Whether this address is allocated to this pod.
    pub fn has(&self, key: &PodKey, address: IpAddr) -> bool {
        self.pods.get(key).is_some_and(|own| own.addresses().any(|own| own == address))
    }

    /// Ordered by namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = (&Arc<PodKey>, &PodAllocation)> {
        self.pods.iter()
    }

    /// Ordered by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&Name, &NodeAllocation)> {
        self.nodes.iter()
    }

    /// Released items that cannot be allocated yet.
    pub fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    /// For reporting commits and raises of `nb_cfg`.
    pub fn quarantine_mut(&mut self) -> &mut Quarantine {
        &mut self.quarantine
    }

    /// Number of allocated subnets of a family, and of all subnets.
    pub fn subnet_counts(&self, family: Family) -> (u128, u128) {
        self.subnets[family.index()].as_ref().map_or((0, 0), |pool| (pool.taken(), pool.capacity()))
    }

    /// Restores a quarantined item that the database lists.
    pub fn restore_quarantined(&mut self, item: Allocatable, owner: &str, node: &str) {
        self.quarantine.restore(item, owner.into(), node.into());
        match item {
            Allocatable::Subnet(subnet) => {
                if let Some(pool) = &mut self.subnets[subnet.family().index()] {
                    pool.quarantine(subnet);
                }
            }
            // A node ID that cannot be claimed is out of range: it is never allocated anyway.
            Allocatable::NodeId(id) => drop(self.ids.claim(id)),
            Allocatable::Address(address) => {
                for pool in self.nodes.values_mut().flat_map(|node| &mut node.pools) {
                    pool.quarantine(address);
                }
            }
        }
    }

    /// Quarantines an item that rows of a former object have, unless it was allocated meanwhile.
    pub(crate) fn quarantine_former(&mut self, item: Allocatable, former: &str, with: &Owner) {
        let node = match item {
            Allocatable::Subnet(subnet) => {
                let pool = self.subnets[subnet.family().index()].as_mut();
                if !pool.is_some_and(|pool| !pool.is_taken(subnet) && pool.quarantine(subnet)) {
                    return;
                }
                former.into()
            }
            Allocatable::NodeId(id) => {
                if self.ids.claim(id).is_err() {
                    return;
                }
                former.into()
            }
            Allocatable::Address(address) => {
                let holder = self.nodes.iter_mut().find_map(|(name, node)| {
                    node.pools.iter_mut().find(|pool| pool.subnet().contains(address)).map(|pool| (name.clone(), pool))
                });
                match holder {
                    Some((_, pool)) if pool.is_taken(address) => return,
                    Some((name, pool)) => {
                        pool.quarantine(address);
                        name
                    }
                    // Its subnet is quarantined, or allocated later: the address stays quarantined then.
                    None => "".into(),
                }
            }
        };
        self.quarantine.add(item, former.into(), node, with);
    }

    /// Ends the quarantine of items whose removal every node has acknowledged; returns the nodes that have something free again.
    pub fn release_acknowledged(&mut self, acknowledged: impl Fn(&str, i64) -> bool) -> Vec<Name> {
        let released = self.quarantine.release(acknowledged);
        let mut nodes: Vec<Name> = Vec::with_capacity(released.len());
        for (item, node) in released {
            nodes.push(node);
            match item {
                Allocatable::Subnet(subnet) => {
                    if let Some(pool) = &mut self.subnets[subnet.family().index()] {
                        pool.lift(subnet);
                    }
                }
                Allocatable::NodeId(id) => drop(self.ids.release(id)),
                Allocatable::Address(address) => {
                    // Not only the node that it was used on: its subnet may be allocated to another by now.
                    for (name, node) in self.nodes.iter_mut().filter(|(_, node)| node.subnet_of(address).is_some()) {
                        for pool in &mut node.pools {
                            pool.lift(address);
                        }
                        nodes.push(name.clone());
                    }
                }
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

#[cfg(test)]
mod tests;
