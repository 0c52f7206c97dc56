//! Allocation: who has which subnet, number and address. A stage of its own, in front of everything else, because it
//! depends on history; what it decides becomes facts that are kept in annotations.
//!
//! ```text
//!  record on the object ─▶ honoured      row in the database ─▶ honoured (we crashed before the record)
//!  request    ─▶ honoured or refused                       nothing ─▶ a free one
//! ```
//!
//! A node's record is its annotations; a pod's is a condition of its status, since tenants may write its annotations.
//!
//! Invariants: nothing is given twice; what was given stays; what is recorded is honoured or refused, never
//! changed; what is released is free again only when every node has forgotten it ([`Quarantine`]).

mod node;
mod pod;
mod quarantine;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use netmodel::{AddressPool, IdPool, Mac, Prefix, SubnetPool, SubnetPoolError};

pub use node::KnownNode;
pub use pod::KnownPort;
pub(crate) use pod::PodState;
pub use quarantine::{Quarantine, Thing};

use crate::identity::{Name, Owner, PodKey};
use crate::objects::PodNetwork;
use crate::settings::{ClusterSettings, FIRST_NODE_ID};

/// What a node has.
#[derive(Debug, Clone)]
pub struct NodeAllocation {
    /// The node's identity.
    pub uid: Name,
    /// Its number.
    pub id: u32,
    /// The addresses of its subnets, IPv4 first.
    pools: Vec<AddressPool>,
}

impl NodeAllocation {
    /// Its subnets, IPv4 first.
    pub fn subnets(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.pools.iter().map(AddressPool::subnet)
    }

    /// Its subnet that an address is in.
    pub fn subnet_of(&self, address: IpAddr) -> Option<Prefix> {
        self.subnets().find(|subnet| subnet.contains(address))
    }

    /// How many pod addresses it has given out.
    fn taken(&self) -> u128 {
        self.pools.iter().map(AddressPool::taken).sum()
    }
}

/// What a pod has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAllocation {
    /// The pod's identity.
    pub uid: Name,
    /// The node whose subnets its addresses are of.
    pub node: Name,
    /// Its MAC.
    pub mac: Mac,
    /// One or two addresses, IPv4 first.
    addresses: [Option<IpAddr>; 2],
}

impl PodAllocation {
    /// Its addresses, IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().copied().flatten()
    }

    /// Whether a network is the one that it has.
    pub fn is(&self, network: &PodNetwork) -> bool {
        let mut said: Vec<IpAddr> = network.addresses.iter().map(|address| address.address()).collect();
        said.sort_by_key(IpAddr::is_ipv6);
        network.mac == self.mac && said.into_iter().eq(self.addresses())
    }
}

/// Who has what.
#[derive(Debug, Clone)]
pub struct Allocator {
    /// IPv4, then IPv6; none if the cluster has no such network.
    subnets: [Option<SubnetPool>; 2],
    ids: IdPool,
    nodes: BTreeMap<Name, NodeAllocation>,
    pods: BTreeMap<Arc<PodKey>, PodAllocation>,
    /// MACs that do not follow from an address, and so could be given twice.
    odd_macs: BTreeMap<(Name, Mac), Arc<PodKey>>,
    quarantine: Quarantine,
}

impl Allocator {
    /// Nothing is given yet.
    pub fn new(settings: &ClusterSettings) -> Result<Self, SubnetPoolError> {
        let pool = |v6: bool| {
            let cidrs: Vec<_> = settings.cluster.iter().copied().filter(|cidr| cidr.cidr.is_ipv6() == v6).collect();
            (!cidrs.is_empty()).then(|| SubnetPool::new(&cidrs)).transpose()
        };
        Ok(Self {
            subnets: [pool(false)?, pool(true)?],
            ids: IdPool::new(FIRST_NODE_ID..=settings.last_node_id()),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            odd_macs: BTreeMap::new(),
            quarantine: Quarantine::default(),
        })
    }

    /// What a node has.
    pub fn node(&self, name: &str) -> Option<&NodeAllocation> {
        self.nodes.get(name)
    }

    /// What a pod has.
    pub fn pod(&self, key: &PodKey) -> Option<&PodAllocation> {
        self.pods.get(key)
    }

    /// Whether a pod has an address.
    pub fn has(&self, key: &PodKey, address: IpAddr) -> bool {
        self.pods.get(key).is_some_and(|own| own.addresses().any(|own| own == address))
    }

    /// What every pod has.
    pub fn pods(&self) -> impl Iterator<Item = (&Arc<PodKey>, &PodAllocation)> {
        self.pods.iter()
    }

    /// What every node has.
    pub fn nodes(&self) -> impl Iterator<Item = (&Name, &NodeAllocation)> {
        self.nodes.iter()
    }

    /// What rests.
    pub fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    /// What rests, to tell it of commits and answers.
    pub fn quarantine_mut(&mut self) -> &mut Quarantine {
        &mut self.quarantine
    }

    /// How many subnets of a family are given, and how many there are.
    pub fn subnet_counts(&self, v6: bool) -> (u128, u128) {
        self.subnets[usize::from(v6)].as_ref().map_or((0, 0), |pool| (pool.taken(), pool.capacity()))
    }

    /// Restores what the database says rests.
    pub fn restore_resting(&mut self, thing: Thing, owner: &str, node: &str) {
        self.quarantine.restore(thing, owner.into(), node.into());
        match thing {
            Thing::Subnet(subnet) => {
                if let Some(pool) = &mut self.subnets[usize::from(subnet.is_ipv6())] {
                    pool.quarantine(subnet);
                }
            }
            // A number that cannot be claimed is out of range: nobody can get it anyway.
            Thing::NodeId(id) => drop(self.ids.claim(id)),
            Thing::Address(address) => {
                for pool in self.nodes.values_mut().flat_map(|node| &mut node.pools) {
                    pool.quarantine(address);
                }
            }
        }
    }

    /// Lets a thing rest that rows of a former object have, unless somebody was given it meanwhile.
    pub(crate) fn rest_former(&mut self, thing: Thing, former: &str, with: &Owner) {
        let node = match thing {
            Thing::Subnet(subnet) => {
                let pool = self.subnets[usize::from(subnet.is_ipv6())].as_mut();
                if !pool.is_some_and(|pool| !pool.is_taken(subnet) && pool.quarantine(subnet)) {
                    return;
                }
                former.into()
            }
            Thing::NodeId(id) => {
                if self.ids.claim(id).is_err() {
                    return;
                }
                former.into()
            }
            Thing::Address(address) => {
                let holder = self.nodes.iter_mut().find_map(|(name, node)| {
                    node.pools.iter_mut().find(|pool| pool.subnet().contains(address)).map(|pool| (name.clone(), pool))
                });
                match holder {
                    Some((_, pool)) if pool.is_taken(address) => return,
                    Some((name, pool)) => {
                        pool.quarantine(address);
                        name
                    }
                    // Its subnet rests, or will be somebody's: then the address still does.
                    None => "".into(),
                }
            }
        };
        self.quarantine.rest(thing, former.into(), node, with);
    }

    /// Frees what every node has forgotten; returns the nodes that have something free again.
    pub fn wake(&mut self, forgotten: impl Fn(&str, i64) -> bool) -> Vec<Name> {
        let awake = self.quarantine.wake(forgotten);
        let mut nodes: Vec<Name> = Vec::with_capacity(awake.len());
        for (thing, node) in awake {
            nodes.push(node);
            match thing {
                Thing::Subnet(subnet) => {
                    if let Some(pool) = &mut self.subnets[usize::from(subnet.is_ipv6())] {
                        pool.lift(subnet);
                    }
                }
                Thing::NodeId(id) => drop(self.ids.release(id)),
                Thing::Address(address) => {
                    // Not only the node that it was used on: its subnet may be another's by now.
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
