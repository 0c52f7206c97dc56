//! ends: who somebody is on the network, and by which addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use objects::{NodeFacts, PodFacts, Protocol};
use topology::desired::{Inputs, host_addresses};

use super::{CannotTell, Judge, Party, Step, step};

/// Who is at an end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Who<'a> {
    /// A pod on the cluster's network.
    Pod(&'a PodFacts),
    /// A node, or a pod on its network.
    Node(&'a NodeFacts),
    /// Nobody of the cluster.
    Outside,
}

/// One end of a packet's way.
#[derive(Debug, Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) who: Who<'a>,
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

/// An end that was asked for; whoever has two families has two.
#[derive(Debug, Clone)]
pub(super) struct Place<'a> {
    pub(super) end: End<'a>,
}

impl<'a> From<End<'a>> for Place<'a> {
    fn from(end: End<'a>) -> Self {
        Self { end }
    }
}

/// The address that a host has on its node's switch: pods see it as the source of what the host sends them.
pub(super) fn management_address(node: &str, v6: bool, given: Inputs<'_>) -> Option<IpAddr> {
    let own = given.allocator.node(node)?;
    own.subnets().find(|subnet| subnet.is_ipv6() == v6)?.nth(2)
}

/// Who has which address.
pub(super) struct Holders<'a>(BTreeMap<IpAddr, Who<'a>>);

impl<'a> Holders<'a> {
    pub(super) fn of(given: Inputs<'a>) -> Self {
        let mut holders = BTreeMap::new();
        for node in given.store.nodes() {
            for v6 in given.settings.families() {
                let management = management_address(&node.name, v6, given);
                holders
                    .extend(host_addresses(node, v6).into_iter().chain(management).map(|own| (own, Who::Node(node))));
            }
        }
        for (key, own) in given.allocator.pods() {
            if let Some(pod) = given.store.pod(key).filter(|pod| !pod.finished && !pod.host_network) {
                holders.extend(own.addresses().map(|address| (address, Who::Pod(pod))));
            }
        }
        Self(holders)
    }

    /// All addresses that somebody has.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.keys().copied()
    }

    /// Who has an address.
    pub(super) fn end(&self, address: IpAddr) -> End<'a> {
        End { who: self.0.get(&address).copied().unwrap_or(Who::Outside), address }
    }
}

/// Which end somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

impl<'a> Judge<'a> {
    /// Where somebody is on the network; none if nowhere, which is told.
    pub(super) fn places(
        &self,
        party: &Party,
        side: Side,
        chain: &mut Vec<Step>,
    ) -> Result<Option<Vec<Place<'a>>>, CannotTell> {
        match party {
            Party::Pod(key) => self.places_of_pod(key, side, chain),
            Party::Node(name) => Ok(Some(self.places_of_node(name, side)?)),
            Party::Service(key) => Err(CannotTell(format!("Service {key} sends nothing itself: ask for its pods"))),
            // Of a network, one address of each part is asked about.
            Party::Network(prefix) => {
                let end = self.holders.end(prefix.network());
                match end.who {
                    Who::Pod(pod) => {
                        let places = self.places_of_pod(&pod.key, side, chain)?;
                        Ok(places.map(|places| {
                            places.into_iter().filter(|place| place.end.address == end.address).collect()
                        }))
                    }
                    // What a host sends to pods comes from its address on the switch.
                    Who::Node(node) if side == Side::Source => {
                        let mut places = self.places_of_node(&node.name, side)?;
                        places.retain(|place| place.end.address.is_ipv6() == end.address.is_ipv6());
                        Ok(Some(places))
                    }
                    Who::Node(_) | Who::Outside => Ok(Some(vec![end.into()])),
                }
            }
        }
    }

    fn places_of_pod(
        &self,
        key: &objects::PodKey,
        side: Side,
        chain: &mut Vec<Step>,
    ) -> Result<Option<Vec<Place<'a>>>, CannotTell> {
        let given = self.given;
        let object = format!("Pod {key}");
        let Some(pod) = given.store.pod(key) else { return Ok(None) };
        let Some(node) = &pod.node else {
            chain.push(step(object, "spec.nodeName", "it is on no node, and has no network"));
            return Ok(None);
        };
        if pod.finished {
            chain.push(step(object, "status.phase", "it has ended, and has no network any more"));
            return Ok(None);
        }
        if pod.host_network {
            chain.push(step(object, "spec.hostNetwork", format!("it is on the network of its node {node}")));
            return self.places_of_node(node, side).map(Some);
        }
        let Some(own) = given.allocator.pod(key) else {
            let says = format!("node {node} has no address for it: it is refused, or its node is not there");
            chain.push(step(object, "spec.nodeName", says));
            return Ok(None);
        };
        let addresses: Vec<String> = own.addresses().map(|address| address.to_string()).collect();
        let says = format!("on node {node}, port {} with {}", key.port_name(), addresses.join(" and "));
        chain.push(step(object, "spec.nodeName", says));
        Ok(Some(own.addresses().map(|address| End { who: Who::Pod(pod), address }.into()).collect()))
    }

    fn places_of_node(&self, name: &str, side: Side) -> Result<Vec<Place<'a>>, CannotTell> {
        let given = self.given;
        let Some(node) = given.store.node(name) else {
            return Err(CannotTell(format!("Node {name} is not there")));
        };
        let families = given.settings.families();
        let addresses: Vec<IpAddr> = match side {
            Side::Source => families.filter_map(|v6| management_address(name, v6, given)).collect(),
            Side::Destination => families.filter_map(|v6| host_addresses(node, v6).first().copied()).collect(),
        };
        if addresses.is_empty() {
            let why = match side {
                Side::Source => "it has no subnet of the cluster's network",
                Side::Destination => "its addresses are not known, its agent has not told k8s.ovn.org/host-cidrs",
            };
            return Err(CannotTell(format!("Node {name}: {why}")));
        }
        Ok(addresses.into_iter().map(|address| End { who: Who::Node(node), address }.into()).collect())
    }
}
