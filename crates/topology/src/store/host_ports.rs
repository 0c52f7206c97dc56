//! Which pods claim which host ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use objects::{Name, PodFacts, PodKey, Protocol};

use super::Store;

/// A port of a node that only one pod can have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPortKey {
    /// The host port, not the container's.
    pub port: u16,
    /// TCP, UDP and SCTP ports are distinct.
    pub protocol: Protocol,
    /// The node that the pod is scheduled to.
    pub node: Name,
}

/// A pod that claims a port, by creation time.
type Claimant = (Box<str>, Arc<PodKey>);

#[derive(Debug, Clone, Default)]
pub(super) struct HostPorts(BTreeMap<HostPortKey, Vec<Claimant>>);

/// The host ports that a pod claims.
pub(crate) fn host_port_keys(pod: &PodFacts) -> impl Iterator<Item = HostPortKey> + '_ {
    let node = pod.wants_port().filter(|_| !pod.host_ports().is_empty());
    node.into_iter().flat_map(|node| {
        let ports = pod.host_ports().iter();
        ports.map(|port| HostPortKey { port: port.host, protocol: port.protocol, node: node.clone() })
    })
}

impl HostPorts {
    pub(super) fn claim(&mut self, pod: &PodFacts) {
        for host_port in host_port_keys(pod) {
            let claimants = self.0.entry(host_port).or_default();
            let one = (pod.created.clone(), pod.key.clone());
            if let Err(index) = claimants.binary_search(&one) {
                claimants.insert(index, one);
            }
        }
    }

    pub(super) fn release(&mut self, pod: &PodFacts) {
        for host_port in host_port_keys(pod) {
            if let Some(claimants) = self.0.get_mut(&host_port) {
                claimants.retain(|(_, key)| *key != pod.key);
                if claimants.is_empty() {
                    self.0.remove(&host_port);
                }
            }
        }
    }
}

impl Store {
    /// The pods that claim a host port, the oldest first.
    pub fn host_port_claimants(&self, host_port: &HostPortKey) -> impl Iterator<Item = &Arc<PodKey>> {
        self.host_ports.0.get(host_port).into_iter().flatten().map(|(_, key)| key)
    }

    /// The pods that claim a host port on any node.
    pub fn host_port_claimants_on_any_node(&self, port: u16, protocol: Protocol) -> impl Iterator<Item = &Arc<PodKey>> {
        let first = HostPortKey { port, protocol, node: "".into() };
        let range = self.host_ports.0.range(first..);
        let range = range.take_while(move |(host_port, _)| host_port.port == port && host_port.protocol == protocol);
        range.flat_map(|(_, claimants)| claimants).map(|(_, key)| key)
    }
}
