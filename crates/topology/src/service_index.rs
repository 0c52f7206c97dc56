//! What stands behind Services, and who claims which address: the reverse indexes of the store.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::identity::ObjectKey;
use crate::objects::{Protocol, ServiceFacts, SliceFacts};

/// An address and port that only one Service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    /// The address; none for the nodes' own.
    pub(crate) address: Option<IpAddr>,
    /// The port.
    pub(crate) port: u16,
    /// Its protocol.
    pub(crate) protocol: Protocol,
}

/// A Service that claims something, behind those that are older.
type Claimant = (Box<str>, Arc<ObjectKey>);

#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceIndex {
    slices: BTreeMap<Arc<ObjectKey>, Vec<Arc<ObjectKey>>>,
    claims: BTreeMap<Claim, Vec<Claimant>>,
}

/// Everything that a Service claims.
pub(crate) fn claims(service: &ServiceFacts) -> impl Iterator<Item = Claim> + '_ {
    service.spec.iter().flat_map(|spec| {
        spec.ports.iter().flat_map(move |port| {
            let addresses = spec.cluster_ips.iter().chain(&spec.external_ips).chain(&spec.ingress_ips);
            let own = addresses.map(|address| (Some(*address), port.port));
            let nodes = port.node_port.map(|node_port| (None, node_port));
            own.chain(nodes).map(|(address, number)| Claim { address, port: number, protocol: port.protocol })
        })
    })
}

impl ServiceIndex {
    pub(crate) fn slices_of(&self, service: &ObjectKey) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.slices.get(service).into_iter().flatten()
    }

    pub(crate) fn slice_comes(&mut self, slice: &SliceFacts) {
        let Some(service) = &slice.service else { return };
        let slices = self.slices.entry(service.clone()).or_default();
        if let Err(place) = slices.binary_search(&slice.key) {
            slices.insert(place, slice.key.clone());
        }
    }

    pub(crate) fn slice_gone(&mut self, key: &ObjectKey, slice: Option<&SliceFacts>) {
        let Some(service) = slice.and_then(|slice| slice.service.as_ref()) else { return };
        if let Some(slices) = self.slices.get_mut(service) {
            slices.retain(|known| **known != *key);
            if slices.is_empty() {
                self.slices.remove(service);
            }
        }
    }

    pub(crate) fn claimants(&self, claim: Claim) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.claims.get(&claim).into_iter().flatten().map(|(_, key)| key)
    }

    pub(crate) fn claim(&mut self, service: &ServiceFacts) {
        for claim in claims(service) {
            let claimants = self.claims.entry(claim).or_default();
            let one = (service.created.clone(), service.key.clone());
            if let Err(place) = claimants.binary_search(&one) {
                claimants.insert(place, one);
            }
        }
    }

    pub(crate) fn release(&mut self, service: &ServiceFacts) {
        for claim in claims(service) {
            if let Some(claimants) = self.claims.get_mut(&claim) {
                claimants.retain(|(_, key)| *key != service.key);
                if claimants.is_empty() {
                    self.claims.remove(&claim);
                }
            }
        }
    }
}
