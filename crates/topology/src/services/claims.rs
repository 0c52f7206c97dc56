//! Indexes of the store: Services by claimed address and port, and slices by Service.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use objects::{ObjectKey, Protocol, ServiceFacts, SliceFacts};

/// An address and port, which only one Service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// None: a port of all nodes.
    pub address: Option<IpAddr>,
    /// Service port, or node port.
    pub port: u16,
    /// Ports of different protocols are distinct.
    pub protocol: Protocol,
}

/// A Service that claims something; the lowest has precedence. A cluster IP outranks an external IP of any age: the API server
/// allocated it, while users may write anything into `externalIPs`. Then the older Service wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Claimant {
    external: bool,
    created: Box<str>,
    key: Arc<ObjectKey>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceIndex {
    slices: BTreeMap<Arc<ObjectKey>, Vec<Arc<ObjectKey>>>,
    claims: BTreeMap<Claim, Vec<Claimant>>,
}

/// What a Service claims, also what another one has.
pub(crate) fn claims(service: &ServiceFacts) -> impl Iterator<Item = Claim> + '_ {
    ranked(service).map(|(claim, _)| claim)
}

/// All claims of a Service, and whether the address is one that the API server did not allocate.
fn ranked(service: &ServiceFacts) -> impl Iterator<Item = (Claim, bool)> + '_ {
    service.spec.iter().flat_map(|spec| {
        spec.ports.iter().flat_map(move |port| {
            let external = spec.external_ips.iter().chain(&spec.ingress_ips);
            let external = external.filter(|address| !spec.cluster_ips.contains(address));
            let addresses = spec.cluster_ips.iter().map(|address| (address, false));
            let own = addresses.chain(external.map(|address| (address, true)));
            let own = own.map(|(address, external)| (Some(*address), port.port, external));
            let nodes = port.node_port.map(|node_port| (None, node_port, false));
            own.chain(nodes)
                .map(|(address, number, external)| (Claim { address, port: number, protocol: port.protocol }, external))
        })
    })
}

impl ServiceIndex {
    pub(crate) fn slices_of(&self, service: &ObjectKey) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.slices.get(service).into_iter().flatten()
    }

    pub(crate) fn add_slice(&mut self, slice: &SliceFacts) {
        let Some(service) = &slice.service else { return };
        let slices = self.slices.entry(service.clone()).or_default();
        if let Err(index) = slices.binary_search(&slice.key) {
            slices.insert(index, slice.key.clone());
        }
    }

    pub(crate) fn remove_slice(&mut self, key: &ObjectKey, slice: Option<&SliceFacts>) {
        let Some(service) = slice.and_then(|slice| slice.service.as_ref()) else { return };
        if let Some(slices) = self.slices.get_mut(service) {
            slices.retain(|known| **known != *key);
            if slices.is_empty() {
                self.slices.remove(service);
            }
        }
    }

    /// The Services with this claim; the first one has it.
    pub(crate) fn claimants(&self, claim: Claim) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.claims.get(&claim).into_iter().flatten().map(|claimant| &claimant.key)
    }

    /// Services with a claim on any port of an address.
    pub(crate) fn claimants_of(&self, address: IpAddr) -> impl Iterator<Item = &Arc<ObjectKey>> {
        let first = Claim { address: Some(address), port: 0, protocol: Protocol::Tcp };
        let range = self.claims.range(first..).take_while(move |(claim, _)| claim.address == Some(address));
        range.flat_map(|(_, claimants)| claimants).map(|claimant| &claimant.key)
    }

    pub(crate) fn claim(&mut self, service: &ServiceFacts) {
        for (claim, external) in ranked(service) {
            let claimants = self.claims.entry(claim).or_default();
            let one = Claimant { external, created: service.created.clone(), key: service.key.clone() };
            if let Err(index) = claimants.binary_search(&one) {
                claimants.insert(index, one);
            }
        }
    }

    pub(crate) fn release(&mut self, service: &ServiceFacts) {
        for claim in claims(service) {
            if let Some(claimants) = self.claims.get_mut(&claim) {
                claimants.retain(|claimant| claimant.key != service.key);
                if claimants.is_empty() {
                    self.claims.remove(&claim);
                }
            }
        }
    }
}
