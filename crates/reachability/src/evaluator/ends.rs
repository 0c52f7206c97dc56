//! The two ends of a packet: which addresses a party has, and which object holds an address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netmodel::Family;
use objects::{NodeFacts, PodFacts, Protocol};
use topology::desired::{Inputs, host_addresses};

use super::{Evaluator, Party, Step, Undetermined, step};

/// The object that holds an address.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holder<'a> {
    /// Not a pod with `hostNetwork`: that is its node.
    Pod(&'a PodFacts),
    /// Also for pods with `hostNetwork`.
    Node(&'a NodeFacts),
    /// No object of the cluster.
    Outside,
}

/// Source or destination of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) holder: Holder<'a>,
    pub(super) address: IpAddr,
}

/// The first packet of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) from: End<'a>,
    pub(super) to: End<'a>,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
}

/// The address of the management port: the source of packets from a host to pods.
pub(super) fn management_address(node: &str, family: Family, inputs: Inputs<'_>) -> Option<IpAddr> {
    let own = inputs.allocator.node(node)?;
    own.subnets().find(|subnet| subnet.family() == family)?.nth(2)
}

/// Finds the pod, node or Service that an address belongs to.
pub(super) struct AddressIndex<'a>(BTreeMap<IpAddr, Holder<'a>>);

impl<'a> AddressIndex<'a> {
    pub(super) fn of(inputs: Inputs<'a>) -> Self {
        let mut holders = BTreeMap::new();
        for node in inputs.store.nodes() {
            for family in inputs.settings.families() {
                let management = management_address(&node.name, family, inputs);
                holders.extend(
                    host_addresses(node, family).into_iter().chain(management).map(|own| (own, Holder::Node(node))),
                );
            }
        }
        for (key, own) in inputs.allocator.pods() {
            if let Some(pod) = inputs.store.pod(key).filter(|pod| !pod.finished && !pod.host_network) {
                holders.extend(own.addresses().map(|address| (address, Holder::Pod(pod))));
            }
        }
        Self(holders)
    }

    /// All addresses of pods, hosts and management ports.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.keys().copied()
    }

    /// An address with the object that holds it.
    pub(super) fn end(&self, address: IpAddr) -> End<'a> {
        End { holder: self.0.get(&address).copied().unwrap_or(Holder::Outside), address }
    }
}

/// Which end a party is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

impl<'a> Evaluator<'a> {
    /// The ends of a party, one of each family; None if it has no address, with the reason in `chain`.
    pub(super) fn ends(
        &self,
        party: &Party,
        side: Side,
        chain: &mut Vec<Step>,
    ) -> Result<Option<Vec<End<'a>>>, Undetermined> {
        match party {
            Party::Pod(key) => self.pod_ends(key, side, chain),
            Party::Node(name) => Ok(Some(self.node_ends(name, side)?)),
            Party::Service(key) => Err(Undetermined(format!("Service {key} sends no packets: ask about its pods"))),
            // Networks are split before: this is one address of a part.
            Party::Network(prefix) => {
                let end = self.addresses.end(prefix.network());
                match end.holder {
                    Holder::Pod(pod) => {
                        let ends = self.pod_ends(&pod.key, side, chain)?;
                        Ok(ends.map(|ends| ends.into_iter().filter(|own| own.address == end.address).collect()))
                    }
                    // Packets of a host to pods have the management port's address.
                    Holder::Node(node) if side == Side::Source => {
                        let mut ends = self.node_ends(&node.name, side)?;
                        ends.retain(|own| Family::of(own.address) == Family::of(end.address));
                        Ok(Some(ends))
                    }
                    Holder::Node(_) | Holder::Outside => Ok(Some(vec![end])),
                }
            }
        }
    }

    fn pod_ends(
        &self,
        key: &objects::PodKey,
        side: Side,
        chain: &mut Vec<Step>,
    ) -> Result<Option<Vec<End<'a>>>, Undetermined> {
        let inputs = self.inputs;
        let object = format!("Pod {key}");
        let Some(pod) = inputs.store.pod(key) else { return Ok(None) };
        let Some(node) = &pod.node else {
            chain.push(step(object, "spec.nodeName", "not scheduled: it has no network"));
            return Ok(None);
        };
        if pod.finished {
            chain.push(step(object, "status.phase", "finished: it has no network"));
            return Ok(None);
        }
        if pod.host_network {
            chain.push(step(object, "spec.hostNetwork", format!("it uses the network of node {node}")));
            return self.node_ends(node, side).map(Some);
        }
        let Some(own) = inputs.allocator.pod(key) else {
            let says = format!("it has no address: it is refused, or node {node} does not exist");
            chain.push(step(object, "spec.nodeName", says));
            return Ok(None);
        };
        let addresses: Vec<String> = own.addresses().map(|address| address.to_string()).collect();
        let says = format!("on node {node}, port {} with {}", key.port_name(), addresses.join(" and "));
        chain.push(step(object, "spec.nodeName", says));
        Ok(Some(own.addresses().map(|address| End { holder: Holder::Pod(pod), address }).collect()))
    }

    fn node_ends(&self, name: &str, side: Side) -> Result<Vec<End<'a>>, Undetermined> {
        let inputs = self.inputs;
        let Some(node) = inputs.store.node(name) else {
            return Err(Undetermined(format!("Node {name} does not exist")));
        };
        let families = inputs.settings.families();
        let addresses: Vec<IpAddr> = match side {
            Side::Source => families.filter_map(|family| management_address(name, family, inputs)).collect(),
            Side::Destination => families.filter_map(|family| host_addresses(node, family).first().copied()).collect(),
        };
        if addresses.is_empty() {
            let reason = match side {
                Side::Source => "it has no pod subnet",
                Side::Destination => "its addresses are unknown: it has no annotation k8s.ovn.org/host-cidrs",
            };
            return Err(Undetermined(format!("Node {name}: {reason}")));
        }
        Ok(addresses.into_iter().map(|address| End { holder: Holder::Node(node), address }).collect())
    }
}
