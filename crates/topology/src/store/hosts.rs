//! The hosts' own addresses, and the largest number of a node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netmodel::Family;
use objects::NodeFacts;

use super::Store;
use crate::desired::host_addresses;

#[derive(Debug, Clone, Default)]
pub(super) struct Hosts {
    /// Number of nodes, by address.
    addresses: BTreeMap<IpAddr, usize>,
    /// Number of nodes by number of addresses, for each family.
    counts: [BTreeMap<usize, usize>; 2],
}

fn add<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    *counts.entry(key).or_default() += 1;
}

fn subtract<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Hosts {
    pub(super) fn add(&mut self, node: &NodeFacts) {
        for family in Family::BOTH {
            let own = host_addresses(node, family);
            add(&mut self.counts[family.index()], own.len());
            own.into_iter().for_each(|address| add(&mut self.addresses, address));
        }
    }

    pub(super) fn remove(&mut self, node: &NodeFacts) {
        for family in Family::BOTH {
            let own = host_addresses(node, family);
            subtract(&mut self.counts[family.index()], &own.len());
            own.iter().for_each(|address| subtract(&mut self.addresses, address));
        }
    }
}

impl Store {
    /// Whether an address is a node's own.
    pub(crate) fn is_host(&self, address: IpAddr) -> bool {
        self.hosts.addresses.contains_key(&address)
    }

    /// The largest number of addresses of a family that a node has.
    pub(crate) fn max_addresses(&self, family: Family) -> usize {
        self.hosts.counts[family.index()].last_key_value().map_or(0, |(count, _)| *count)
    }
}
