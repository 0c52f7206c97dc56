//! Changes of Services and EndpointSlices: which owners to requeue. Services that depend on nodes are recorded on their
//! turn, so that a change of a node finds them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use netmodel::Family;
use objects::{Name, NodeFacts, ObjectKey, ServiceFacts, SliceFacts};

use super::Engine;
use crate::desired::{Needs, host_addresses};
use crate::identity::Owner;
use crate::services::{Claim, claims, is_api_server};
use crate::store::Store;

/// Services whose rows depend on nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeBound {
    /// On every single node.
    each: BTreeSet<Arc<ObjectKey>>,
    /// On the largest number of addresses of a node.
    ports: BTreeSet<Arc<ObjectKey>>,
}

impl NodeBound {
    pub(super) fn note(&mut self, key: &Arc<ObjectKey>, needs: Needs) {
        for (set, needed) in [(&mut self.each, needs.each_node), (&mut self.ports, needs.node_ports)] {
            if needed {
                set.insert(key.clone());
            } else {
                set.remove(key);
            }
        }
    }
}

/// The largest number of addresses of a node, by family: a node port has as many load-balancer addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodePorts([usize; 2]);

impl NodePorts {
    pub(super) fn of(store: &Store) -> Self {
        Self(Family::BOTH.map(|family| store.max_addresses(family)))
    }
}

/// The facts of a node that Services depend on: UID, chassis, zone, addresses.
pub(super) fn for_services(node: &NodeFacts) -> (Name, Option<Box<str>>, Option<Name>, Vec<IpAddr>) {
    let addresses = Family::BOTH.into_iter().flat_map(|family| host_addresses(node, family)).collect();
    (node.uid.clone(), node.chassis.clone(), node.zone.clone(), addresses)
}

/// The addresses of API servers in a slice: no Service may claim them.
fn api_servers(slice: &SliceFacts) -> impl Iterator<Item = IpAddr> + '_ {
    let own = slice.service.as_ref().is_some_and(|service| is_api_server(service));
    slice.spec.endpoints.iter().filter(move |_| own).map(|endpoint| endpoint.address)
}

impl Engine {
    pub(super) fn service_changed(&mut self, service: ServiceFacts, now: Duration) {
        let key = service.key.clone();
        let before = self.store.put_service(service);
        let Some(service) = self.store.service(&key) else { return };
        if before.as_ref() == Some(service) {
            return;
        }
        let claimed: BTreeSet<Claim> = claims(service).chain(before.iter().flat_map(claims)).collect();
        if let Some(leading) = &mut self.leading
            && before.as_ref().is_none_or(|before| before.uid != service.uid)
        {
            leading.warned.remove(&Owner::Service(key.clone()));
        }
        self.queue(Owner::Service(key.clone()), now);
        self.queue_claimants(&key, &claimed, now);
    }

    pub(super) fn service_gone(&mut self, key: &ObjectKey, uid: Option<&str>, now: Duration) {
        let Some(service) = self.store.remove_service(key, uid) else { return };
        self.queue(Owner::Service(service.key.clone()), now);
        self.queue_claimants(key, &claims(&service).collect(), now);
    }

    /// Requeues the other claimants of addresses and ports: they may get or lose them.
    fn queue_claimants(&mut self, own: &ObjectKey, claimed: &BTreeSet<Claim>, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        for other in claimed.iter().flat_map(|claim| self.store.claimants(*claim)).filter(|key| &***key != own) {
            leading.queue.push(Owner::Service(other.clone()), now);
        }
        self.queue_host_ports_claimed(claimed, now);
    }

    pub(super) fn slice_changed(&mut self, slice: SliceFacts, now: Duration) {
        let key = slice.key.clone();
        let after = slice.service.clone();
        let before = self.store.put_slice(slice);
        let changed = before.as_ref().is_none_or(|before| !self.store.has_slice(&key, before));
        if !changed {
            return;
        }
        let hosts: Vec<IpAddr> = before.iter().chain(self.store.slice(&key)).flat_map(api_servers).collect();
        self.queue_claimants_of(&hosts, now);
        let former = before.and_then(|before| before.service).filter(|former| Some(former) != after.as_ref());
        for service in after.into_iter().chain(former) {
            self.queue(Owner::Service(service), now);
        }
    }

    pub(super) fn remove_slice(&mut self, key: &ObjectKey, uid: Option<&str>, now: Duration) {
        let Some(slice) = self.store.remove_slice(key, uid) else { return };
        self.queue_claimants_of(&api_servers(&slice).collect::<Vec<_>>(), now);
        if let Some(service) = slice.service {
            self.queue(Owner::Service(service), now);
        }
    }

    /// The addresses of OVN's databases changed.
    pub fn set_databases(&mut self, addresses: Vec<IpAddr>, now: Duration) {
        let before = std::mem::replace(&mut Arc::make_mut(&mut self.settings).databases, addresses);
        let changed: Vec<IpAddr> = before.iter().chain(&self.settings.databases).copied().collect();
        self.queue_claimants_of(&changed, now);
    }

    /// Addresses became those of a host, or no longer are: no Service may claim them.
    pub(super) fn queue_claimants_of(&mut self, addresses: &[IpAddr], now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        for key in addresses.iter().flat_map(|address| self.store.claimants_of(*address)) {
            leading.queue.push(Owner::Service(key.clone()), now);
        }
    }

    /// A node changed in facts that Services depend on.
    pub(super) fn queue_node_bound(&mut self, before: NodePorts, now: Duration) {
        let ports = NodePorts::of(&self.store) != before;
        let Some(leading) = &mut self.leading else { return };
        for node in self.store.nodes().filter(|_| ports) {
            // Each node has a variable for as many addresses.
            leading.queue.push(Owner::Node(node.name.clone()), now);
        }
        for key in leading.node_bound.each.iter().chain(leading.node_bound.ports.iter().filter(|_| ports)) {
            leading.queue.push(Owner::Service(key.clone()), now);
        }
    }
}
