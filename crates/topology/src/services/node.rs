//! Services as a node agent needs them: what its host and outside clients reach on the node.
//!
//! The agent keeps the same facts as the controller, without those that make no difference on its node: of an EndpointSlice
//! the endpoints of its own node and one of each other state, which shows whether there are any; of a Node the addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use netmodel::{Family, Prefix};
use objects::{
    Annotated, Endpoint, Labels, Name, NodeFacts, ObjectKey, ObjectKind, Protocol, ServiceFacts, SliceFacts,
};

use super::{Claim, EndpointSelection, ServiceInputs, Target, Vip, affinity_slots, decide, is_api_server};
use crate::settings::ClusterSettings;
use crate::store::Store;

/// Where a port is exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenAddress {
    /// At all addresses of the node of a family.
    Node(Family),
    /// At this address only.
    Address(IpAddr),
}

/// A port that outside clients and the host reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// Addresses at which it is reached.
    pub listen: ListenAddress,
    /// Protocol of the Service's port.
    pub protocol: Protocol,
    /// Service port, or node port.
    pub port: u16,
    /// The cluster IP, which connections of the host are redirected to; None if there is none of the family.
    pub host_target: Option<Target>,
    /// Clients keep their address and get endpoints of this node only.
    pub preserves_source: bool,
    /// Endpoints of this node, if `preserves_source`.
    pub endpoints: Vec<Target>,
    /// Allowed clients; empty means all.
    pub source_ranges: Vec<Prefix>,
    /// `endpoints` are affinity slots.
    pub affinity: bool,
}

/// Services as one node agent serves them.
#[derive(Debug)]
pub struct NodeServices {
    node: Name,
    store: Store,
}

impl NodeServices {
    /// Without objects.
    pub fn new(node: &str) -> Self {
        Self { node: node.into(), store: Store::default() }
    }

    /// Whether all kinds have been listed once: before that, a missing object may exist.
    pub fn is_complete(&self) -> bool {
        let needed = [ObjectKind::Node, ObjectKind::Service, ObjectKind::EndpointSlice];
        !self.store.missing().any(|kind| needed.contains(&kind))
    }

    /// A list of a kind begins.
    pub fn relisting(&mut self, kind: ObjectKind) {
        self.store.relisting(kind);
    }

    /// The list of a kind is complete: objects that were not in it are removed.
    pub fn listed(&mut self, kind: ObjectKind) {
        for key in self.store.listed(kind) {
            self.remove(kind, &key, None);
        }
    }

    /// An object exists but cannot be parsed: its last known facts stay.
    pub fn seen_unreadable(&mut self, kind: ObjectKind, key: &Arc<ObjectKey>) {
        self.store.seen_unreadable(kind, key);
    }

    /// Removes an object, unless the UID differs; returns whether that may make a difference.
    pub fn remove(&mut self, kind: ObjectKind, key: &ObjectKey, uid: Option<&str>) -> bool {
        match kind {
            ObjectKind::Node => self.store.remove_node(&key.name, uid).is_some(),
            ObjectKind::Service => self.store.remove_service(key, uid).is_some(),
            ObjectKind::EndpointSlice => self.store.remove_slice(key, uid).is_some_and(|slice| self.matters(&slice)),
            _ => false,
        }
    }

    /// Puts a Service; returns whether that may make a difference.
    pub fn put_service(&mut self, service: ServiceFacts) -> bool {
        let key = service.key.clone();
        let before = self.store.put_service(service);
        before.as_ref() != self.store.service(&key)
    }

    /// Puts an EndpointSlice; returns whether that may make a difference.
    pub fn put_slice(&mut self, mut slice: SliceFacts) -> bool {
        if slice.broken.is_some() {
            // Its last valid version stays, as in the database.
            self.store.seen_unreadable(ObjectKind::EndpointSlice, &slice.key);
            return false;
        }
        self.reduce(&mut slice);
        let key = slice.key.clone();
        let mut matters = self.matters(&slice);
        let before = self.store.put_slice(slice);
        matters |= before.as_ref().is_some_and(|before| self.matters(before));
        matters && before.is_none_or(|before| !self.store.has_slice(&key, &before))
    }

    /// Puts a Node; returns whether that may make a difference.
    pub fn put_node(&mut self, node: NodeFacts) -> bool {
        let node = NodeFacts {
            subnets: Annotated::Absent,
            id: Annotated::Absent,
            chassis: None,
            management_mac: Annotated::Absent,
            network_unavailable: None,
            ready: true,
            labels: Labels::default(),
            zone: None,
            ..node
        };
        let name = node.name.clone();
        let before = self.store.put_node(node);
        before.as_ref() != self.store.node(&name)
    }

    /// Whether a slice's endpoints make a difference: otherwise only the gateway router needs them.
    fn matters(&self, slice: &SliceFacts) -> bool {
        slice.service.as_ref().is_some_and(|service| {
            let spec = self.store.service(service).and_then(|service| service.spec.as_ref());
            is_api_server(service) || spec.is_some_and(|spec| spec.external_local)
        })
    }

    /// Keeps the endpoints of this node, and one of each state of the others, which shows whether there are any.
    fn reduce(&self, slice: &mut SliceFacts) {
        if slice.service.as_ref().is_some_and(|service| is_api_server(service)) {
            return;
        }
        let mut others = Vec::new();
        let keep = |endpoint: &Endpoint| {
            let state = (endpoint.ready, endpoint.serving && endpoint.terminating);
            endpoint.node.as_ref() == Some(&self.node) || {
                let new = !others.contains(&state);
                others.push(state);
                new
            }
        };
        let mut endpoints = std::mem::take(&mut slice.spec.endpoints).into_vec();
        endpoints.retain(keep);
        endpoints.iter_mut().for_each(|endpoint| endpoint.hints = None);
        slice.spec.endpoints = endpoints.into();
    }

    /// Whether a Service has this node port, which then cannot be a pod's host port.
    pub fn has_node_port(&self, port: u16, protocol: Protocol) -> bool {
        self.store.claimants(Claim { address: None, port, protocol }).next().is_some()
    }

    /// All ports that Services expose on this node.
    pub fn exposures(&self, settings: &ClusterSettings) -> Vec<Exposure> {
        let mut exposures = Vec::new();
        for service in self.store.services() {
            let Some(spec) = &service.spec else { continue };
            let external = spec.external_ips.len() + spec.ingress_ips.len();
            if external == 0 && spec.ports.iter().all(|port| port.node_port.is_none()) {
                continue;
            }
            for served in decide(service, ServiceInputs { settings, store: &self.store }).ports {
                let host_target = served.vips.iter().find_map(|one| match one.vip {
                    Vip::Cluster(address) => Some((address, served.port.port)),
                    Vip::External(_) | Vip::NodePort { .. } => None,
                });
                for one in &served.vips {
                    let (listen, port) = match one.vip {
                        Vip::Cluster(_) => continue,
                        Vip::External(address) => (ListenAddress::Address(address), served.port.port),
                        Vip::NodePort { family, port } => (ListenAddress::Node(family), port),
                    };
                    let local = one.preserves_source && one.for_others == EndpointSelection::Local;
                    let endpoints = if local { served.endpoints.local(&self.node) } else { Vec::new() };
                    exposures.push(Exposure {
                        listen,
                        protocol: served.port.protocol,
                        port,
                        host_target,
                        preserves_source: one.preserves_source,
                        endpoints: if spec.affinity { affinity_slots(&endpoints) } else { endpoints },
                        source_ranges: if one.source_ranges_apply { spec.source_ranges.to_vec() } else { Vec::new() },
                        affinity: spec.affinity,
                    });
                }
            }
        }
        exposures
    }

    /// Health-check node ports, with the Service and the number of its endpoints on this node.
    pub fn health(&self, settings: &ClusterSettings) -> BTreeMap<u16, (ObjectKey, usize)> {
        let mut health = BTreeMap::new();
        for service in self.store.services() {
            let Some(spec) = service.spec.as_ref().filter(|spec| spec.external_local) else { continue };
            let Some(port) = spec.health_check_node_port else { continue };
            let decision = decide(service, ServiceInputs { settings, store: &self.store });
            let mut addresses: Vec<IpAddr> = decision
                .ports
                .iter()
                .flat_map(|served| served.endpoints.local(&self.node))
                .map(|(address, _)| address)
                .collect();
            addresses.sort_unstable();
            addresses.dedup();
            // As with kube-proxy: terminating endpoints get no new clients of a load balancer.
            let mut endpoints = self.store.slices_of(&service.key).flat_map(|slice| slice.spec.endpoints.iter());
            let ready = endpoints.any(|endpoint| endpoint.ready && endpoint.node.as_ref() == Some(&self.node));
            health.insert(port, ((*service.key).clone(), if ready { addresses.len() } else { 0 }));
        }
        health
    }
}
