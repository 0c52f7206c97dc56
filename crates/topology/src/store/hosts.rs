//! The hosts' own addresses: which there are, and how many a node has at most.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Store;
use crate::desired::host_addresses;
use crate::objects::NodeFacts;

#[derive(Debug, Clone, Default)]
pub(super) struct Hosts {
    /// How many nodes have an address.
    addresses: BTreeMap<IpAddr, usize>,
    /// How many nodes have so many addresses, by family.
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
        for v6 in [false, true] {
            let own = host_addresses(node, v6);
            add(&mut self.counts[usize::from(v6)], own.len());
            own.into_iter().for_each(|address| add(&mut self.addresses, address));
        }
    }

    pub(super) fn remove(&mut self, node: &NodeFacts) {
        for v6 in [false, true] {
            let own = host_addresses(node, v6);
            subtract(&mut self.counts[usize::from(v6)], &own.len());
            own.iter().for_each(|address| subtract(&mut self.addresses, address));
        }
    }
}

impl Store {
    /// Whether an address is a node's own.
    pub(crate) fn is_host(&self, address: IpAddr) -> bool {
        self.hosts.addresses.contains_key(&address)
    }

    /// How many addresses of a family a node has at most.
    pub(crate) fn most_addresses(&self, v6: bool) -> usize {
        self.hosts.counts[usize::from(v6)].last_key_value().map_or(0, |(count, _)| *count)
    }
}
