//! Services as one node's agent sees them: what its host and clients outside of the cluster reach there.
//!
//! The agent keeps the same facts as the controller, less what makes no difference on its node: of an EndpointSlice its own
//! node's endpoints and a few others, which say whether there is one anywhere; of a Node its addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use netmodel::Prefix;

use super::{Choice, Claim, Inputs, Target, Vip, decide, is_api_server, places};
use crate::identity::{Name, ObjectKey};
use crate::objects::{Annotated, Endpoint, Labels, NodeFacts, Protocol, ServiceFacts, SliceFacts};
use crate::settings::ClusterSettings;
use crate::store::{ObjectKind, Store};

/// Where something is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Under every address of the node, of a family.
    Node {
        /// IPv6.
        v6: bool,
    },
    /// Under one address.
    Address(IpAddr),
}

/// A port that clients outside of the cluster and the host itself reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// Where.
    pub place: Place,
    /// Its protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The Service's address inside the cluster, which the host uses instead; none if the Service has none of the family.
    pub inside: Option<Target>,
    /// Clients keep their address and get endpoints of this node alone.
    pub keeps_source: bool,
    /// These endpoints, where clients keep their address.
    pub endpoints: Vec<Target>,
    /// From where it may be used; empty is from everywhere.
    pub ranges: Vec<Prefix>,
    /// A client stays with its endpoint.
    pub affinity: bool,
}

/// The facts of one agent.
#[derive(Debug)]
pub struct NodeServices {
    node: Name,
    store: Store,
}

impl NodeServices {
    /// No objects yet.
    pub fn new(node: &str) -> Self {
        Self { node: node.into(), store: Store::default() }
    }

    /// Whether all kinds that matter have been listed once: before that, what is not there says nothing.
    pub fn is_complete(&self) -> bool {
        let needed = [ObjectKind::Node, ObjectKind::Service, ObjectKind::EndpointSlice];
        !self.store.missing().any(|kind| needed.contains(&kind))
    }

    /// A list of a kind begins.
    pub fn relisting(&mut self, kind: ObjectKind) {
        self.store.relisting(kind);
    }

    /// The list of a kind is complete: what was not in it is gone.
    pub fn listed(&mut self, kind: ObjectKind) {
        for key in self.store.listed(kind) {
            self.remove(kind, &key, None);
        }
    }

    /// An object is there that cannot be read: what was known of it stays.
    pub fn seen_unreadable(&mut self, kind: ObjectKind, key: &Arc<ObjectKey>) {
        self.store.seen_unreadable(kind, key);
    }

    /// Removes an object, unless it is another one of the same name; returns whether that may make a difference.
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
            // What it said before stays, as in the database.
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

    /// Whether a slice's endpoints make a difference: elsewhere the gateway router knows them, and the agent need not.
    fn matters(&self, slice: &SliceFacts) -> bool {
        slice.service.as_ref().is_some_and(|service| {
            let spec = self.store.service(service).and_then(|service| service.spec.as_ref());
            is_api_server(service) || spec.is_some_and(|spec| spec.external_local)
        })
    }

    /// Keeps the endpoints of this node, and one of each state of the others: that is enough to tell whether there are any.
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

    /// Whether a Service has a port of all nodes: it is no pod's then.
    pub fn has_node_port(&self, port: u16, protocol: Protocol) -> bool {
        self.store.claimants(Claim { address: None, port, protocol }).next().is_some()
    }

    /// Everything that Services expose on this node.
    pub fn exposures(&self, settings: &ClusterSettings) -> Vec<Exposure> {
        let mut exposures = Vec::new();
        for service in self.store.services() {
            let Some(spec) = &service.spec else { continue };
            let external = spec.external_ips.len() + spec.ingress_ips.len();
            if external == 0 && spec.ports.iter().all(|port| port.node_port.is_none()) {
                continue;
            }
            for served in decide(service, Inputs { settings, store: &self.store }).ports {
                let inside = served.vips.iter().find_map(|one| match one.vip {
                    Vip::Cluster(address) => Some((address, served.port.port)),
                    Vip::External(_) | Vip::NodePort { .. } => None,
                });
                for one in &served.vips {
                    let (place, port) = match one.vip {
                        Vip::Cluster(_) => continue,
                        Vip::External(address) => (Place::Address(address), served.port.port),
                        Vip::NodePort { v6, port } => (Place::Node { v6 }, port),
                    };
                    let local = one.keeps_source && one.routers == Choice::Local;
                    let endpoints = if local { served.endpoints.local(&self.node) } else { Vec::new() };
                    exposures.push(Exposure {
                        place,
                        protocol: served.port.protocol,
                        port,
                        inside,
                        keeps_source: one.keeps_source,
                        endpoints: if spec.affinity { places(&endpoints) } else { endpoints },
                        ranges: if one.guarded { spec.source_ranges.to_vec() } else { Vec::new() },
                        affinity: spec.affinity,
                    });
                }
            }
        }
        exposures
    }

    /// The ports at which load balancers ask whether a Service has endpoints on this node, and how many it has.
    pub fn health(&self, settings: &ClusterSettings) -> BTreeMap<u16, (ObjectKey, usize)> {
        let mut health = BTreeMap::new();
        for service in self.store.services() {
            let Some(spec) = service.spec.as_ref().filter(|spec| spec.external_local) else { continue };
            let Some(port) = spec.health_check_node_port else { continue };
            let decision = decide(service, Inputs { settings, store: &self.store });
            let mut addresses: Vec<IpAddr> = decision
                .ports
                .iter()
                .flat_map(|served| served.endpoints.local(&self.node))
                .map(|(address, _)| address)
                .collect();
            addresses.sort_unstable();
            addresses.dedup();
            // As kube-proxy has it: an endpoint that terminates takes no new clients of a load balancer.
            let mut endpoints = self.store.slices_of(&service.key).flat_map(|slice| slice.spec.endpoints.iter());
            let ready = endpoints.any(|endpoint| endpoint.ready && endpoint.node.as_ref() == Some(&self.node));
            health.insert(port, ((*service.key).clone(), if ready { addresses.len() } else { 0 }));
        }
        health
    }
}
