//! Which pods ask for which ports of their nodes: who has one, and whom it concerns when one comes free.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Store;
use crate::identity::{Name, PodKey};
use crate::objects::{PodFacts, Protocol};

/// A port of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Door {
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    pub(crate) node: Name,
}

/// A pod that asks for a port, behind those that are older.
type Claimant = (Box<str>, Arc<PodKey>);

#[derive(Debug, Clone, Default)]
pub(super) struct HostPorts(BTreeMap<Door, Vec<Claimant>>);

/// The ports of its node that a pod asks for.
pub(crate) fn doors(pod: &PodFacts) -> impl Iterator<Item = Door> + '_ {
    let node = pod.wants_port().filter(|_| !pod.host_ports().is_empty());
    node.into_iter().flat_map(|node| {
        let ports = pod.host_ports().iter();
        ports.map(|port| Door { port: port.host, protocol: port.protocol, node: node.clone() })
    })
}

impl HostPorts {
    pub(super) fn claim(&mut self, pod: &PodFacts) {
        for door in doors(pod) {
            let claimants = self.0.entry(door).or_default();
            let one = (pod.created.clone(), pod.key.clone());
            if let Err(place) = claimants.binary_search(&one) {
                claimants.insert(place, one);
            }
        }
    }

    pub(super) fn release(&mut self, pod: &PodFacts) {
        for door in doors(pod) {
            if let Some(claimants) = self.0.get_mut(&door) {
                claimants.retain(|(_, key)| *key != pod.key);
                if claimants.is_empty() {
                    self.0.remove(&door);
                }
            }
        }
    }
}

impl Store {
    /// The pods that ask for a port of a node, the oldest first.
    pub(crate) fn who_asks_for(&self, door: &Door) -> impl Iterator<Item = &Arc<PodKey>> {
        self.host_ports.0.get(door).into_iter().flatten().map(|(_, key)| key)
    }

    /// The pods that ask for a port of whichever node.
    pub(crate) fn who_asks_anywhere(&self, port: u16, protocol: Protocol) -> impl Iterator<Item = &Arc<PodKey>> {
        let first = Door { port, protocol, node: "".into() };
        let range = self.host_ports.0.range(first..);
        let range = range.take_while(move |(door, _)| door.port == port && door.protocol == protocol);
        range.flat_map(|(_, claimants)| claimants).map(|(_, key)| key)
    }
}
