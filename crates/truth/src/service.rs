//! Services: which endpoints may answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::address::Family;
use crate::cluster::Cluster;
use crate::end::{AddressOwner, TrafficEnd};
use crate::objects::{EndpointSlice, Protocol, ServiceObject, ServicePort, SliceEndpoint};

/// The outcome of the first packet to a Service's cluster IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// The Service has no such address or port; with the reason.
    Unknown(String),
    /// There are no endpoints.
    Rejected,
    /// One of these answers; ordered by address and port. Policies are then evaluated with [`Cluster::verdict`] to its
    /// place and port.
    Endpoints(Vec<Endpoint>),
}

/// An endpoint that may get the packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Destination address after load balancing.
    pub address: IpAddr,
    /// Destination port after load balancing: policies see this one.
    pub port: u16,
    /// The owner of the address.
    pub place: TrafficEnd,
}

impl Cluster {
    /// The endpoints that may be selected for traffic to a Service's `clusterIPs`.
    pub fn service(
        &self,
        from: &TrafficEnd,
        (namespace, name): (&str, &str),
        protocol: Protocol,
        port: u16,
        family: Family,
    ) -> Service {
        let unknown = |problem: &str| Service::Unknown(format!("{namespace}/{name} {problem}"));
        let named = |service: &&ServiceObject| service.metadata.namespace == namespace && service.metadata.name == name;
        let Some(service) = self.services.iter().find(named) else {
            return unknown("does not exist");
        };
        if service.spec.kind == "ExternalName" {
            return unknown("is an ExternalName Service");
        }
        if !service.spec.addresses().any(|address| Family::of(address) == family) {
            return unknown(&format!("has no {family} address"));
        }
        let Some(service_port) =
            service.spec.ports.iter().find(|entry| entry.port == port && entry.protocol == protocol)
        else {
            return unknown(&format!("has no port {port}/{protocol}"));
        };
        let all = self.candidates(service, service_port, family);
        // With internalTrafficPolicy Local, only endpoints on the sender's node.
        let local = service.spec.internal_traffic_policy == "Local";
        let node = self.node_of(from);
        let near: Vec<_> =
            all.into_iter().filter(|(endpoint, _)| !local || (node.is_some() && endpoint.node_name == node)).collect();
        // Ready endpoints; else those that serve while terminating.
        let ready = addresses(near.iter().filter(|(endpoint, _)| endpoint.conditions.ready()));
        let serving = addresses(near.iter().filter(|(endpoint, _)| endpoint.conditions.serving_while_terminating()));
        let chosen = if ready.is_empty() { serving } else { ready };
        if chosen.is_empty() {
            return Service::Rejected;
        }
        let endpoints =
            chosen.into_iter().map(|(address, port)| Endpoint { address, port, place: self.place(address) });
        Service::Endpoints(endpoints.collect())
    }

    /// All endpoints of a Service's port in all its slices, ready or not, with their target ports.
    fn candidates(
        &self,
        service: &ServiceObject,
        service_port: &ServicePort,
        family: Family,
    ) -> Vec<(SliceEndpoint, u16)> {
        let own = |slice: &&EndpointSlice| {
            let owner = slice.metadata.labels.get("kubernetes.io/service-name");
            slice.metadata.namespace == service.metadata.namespace && owner == Some(&service.metadata.name)
        };
        let mut found = Vec::new();
        for slice in self.slices.iter().filter(own) {
            for port in &slice.ports {
                // Ports of Service and slice match by name.
                let same_name = port.name.clone().unwrap_or_default() == service_port.name;
                let (true, true, Some(number)) = (same_name, port.protocol == service_port.protocol, port.port) else {
                    continue;
                };
                let of_family = |endpoint: &&SliceEndpoint| {
                    address_of(endpoint).is_some_and(|address| Family::of(address) == family)
                };
                found.extend(slice.endpoints.iter().filter(of_family).map(|endpoint| (endpoint.clone(), number)));
            }
        }
        found
    }

    fn node_of(&self, place: &TrafficEnd) -> Option<String> {
        match place {
            TrafficEnd::Pod { namespace, name } => self.pod(namespace, name).map(|pod| pod.spec.node_name.clone()),
            TrafficEnd::Node(name) => Some(name.clone()),
            TrafficEnd::External(_) => None,
        }
    }

    fn place(&self, address: IpAddr) -> TrafficEnd {
        match self.owner_of(address) {
            AddressOwner::Pod(pod) => TrafficEnd::pod(&pod.metadata.namespace, &pod.metadata.name),
            AddressOwner::Node(node) => TrafficEnd::node(&node.metadata.name),
            AddressOwner::External => TrafficEnd::External(address),
        }
    }
}

/// The API allows several addresses; only the first counts.
fn address_of(endpoint: &SliceEndpoint) -> Option<IpAddr> {
    endpoint.addresses.first()?.parse().ok()
}

/// Addresses and ports, deduplicated.
fn addresses<'a>(endpoints: impl Iterator<Item = &'a (SliceEndpoint, u16)>) -> BTreeSet<(IpAddr, u16)> {
    endpoints.filter_map(|(endpoint, port)| Some((address_of(endpoint)?, *port))).collect()
}
