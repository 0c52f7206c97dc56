//! Endpoints of a Service's port, and the selection that a client gets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netmodel::Family;
use objects::{Hints, Name, NodeFacts, ObjectKey, ServicePort};

use super::ServiceInputs;
use crate::desired::host_addresses;

/// Address and port of an endpoint.
pub type Target = (IpAddr, u16);

/// The state of an endpoint, joined over all slices that list it on the same node.
#[derive(Debug, Clone, Copy, Default)]
struct State<'a> {
    ready: bool,
    /// Terminating but serving.
    draining: bool,
    hints: Option<&'a Hints>,
}

/// The endpoints of one port of a Service, of one family.
#[derive(Debug)]
pub struct Endpoints<'a> {
    /// Also by node: slices may overlap and disagree, and "on this node" counts only slices that say so. So an agent that
    /// keeps only the endpoints of its own node gets the same result.
    states: BTreeMap<(Target, Option<&'a Name>), State<'a>>,
    publish_not_ready: bool,
    /// Nodes whose own addresses are endpoints: host-network pods.
    hosts: Vec<&'a NodeFacts>,
}

/// The endpoints that clients of a node get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointSelection {
    /// All usable ones.
    All,
    /// Those with hints for the node, or all if there are none.
    Hinted,
    /// Those on the node (`trafficPolicy: Local`).
    Local,
}

impl<'a> Endpoints<'a> {
    pub(super) fn of(
        service: &ObjectKey,
        port: &ServicePort,
        family: Family,
        publish_not_ready: bool,
        inputs: ServiceInputs<'a>,
    ) -> Self {
        let mut states: BTreeMap<(Target, Option<&'a Name>), State<'a>> = BTreeMap::new();
        for slice in inputs.store.slices_of(service) {
            let ports = slice.spec.ports.iter();
            for target in ports.filter(|target| target.name == port.name && target.protocol == port.protocol) {
                for endpoint in slice.spec.endpoints.iter().filter(|endpoint| family.matches(endpoint.address)) {
                    let key = ((endpoint.address, target.port), endpoint.node.as_ref());
                    // If slices disagree, the better state counts.
                    states.entry(key).or_default().join(State {
                        ready: endpoint.ready,
                        draining: endpoint.serving && endpoint.terminating,
                        hints: endpoint.hints.as_deref(),
                    });
                }
            }
        }
        let pods: Vec<_> = inputs.settings.cluster_of(family).collect();
        let outside = |address: &IpAddr| !pods.iter().any(|pods| pods.contains(*address));
        let not_pods: Vec<IpAddr> = states.keys().map(|((address, _), _)| *address).filter(outside).collect();
        let hosts = match not_pods.is_empty() {
            true => Vec::new(),
            false => {
                let on = |node: &&NodeFacts| host_addresses(node, family).iter().any(|own| not_pods.contains(own));
                inputs.store.nodes().filter(on).collect()
            }
        };
        Self { states, publish_not_ready, hosts }
    }

    /// Whether some have a host's address: a gateway router cannot reach its own host by it.
    pub fn on_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whether the node has endpoints on its own addresses.
    pub fn is_host(&self, node: &NodeFacts) -> bool {
        self.hosts.iter().any(|host| host.name == node.name)
    }

    /// Whether none is usable.
    pub fn is_empty(&self) -> bool {
        self.usable(|_| true).is_empty()
    }

    /// Whether all usable ones have hints; false if there are none.
    pub fn are_hinted(&self) -> bool {
        let usable = self.usable(|_| true);
        !usable.is_empty() && usable.iter().all(|(_, state)| state.hints.is_some())
    }

    /// Ready endpoints; if there are none, those that are terminating but serving.
    fn usable(&self, which: impl Fn(Option<&Name>) -> bool) -> Vec<(Target, State<'a>)> {
        let mut known: Vec<(Target, State<'a>)> = Vec::new();
        for ((target, _), state) in self.states.iter().filter(|((_, node), _)| which(*node)) {
            match known.last_mut().filter(|(last, _)| last == target) {
                Some((_, joined)) => joined.join(*state),
                None => known.push((*target, *state)),
            }
        }
        let ready = |(_, state): &(Target, State<'a>)| state.ready || self.publish_not_ready;
        if known.iter().any(ready) {
            known.retain(ready);
        } else {
            known.retain(|(_, state)| state.draining);
        }
        known
    }

    /// Every endpoint that may get packets, whatever its node.
    pub fn all(&self) -> Vec<Target> {
        targets(self.usable(|_| true))
    }

    /// Usable endpoints of one node.
    pub fn local(&self, node: &str) -> Vec<Target> {
        targets(self.usable(|name| name.is_some_and(|name| **name == *node)))
    }

    /// The endpoints that clients of a node get.
    pub fn of_node(&self, choice: EndpointSelection, node: &NodeFacts) -> Vec<Target> {
        match choice {
            EndpointSelection::All => self.all(),
            EndpointSelection::Local => self.local(&node.name),
            EndpointSelection::Hinted => {
                let hinted = |names: fn(&Hints) -> &[Name], name: &Name| -> Vec<Target> {
                    let mut all = self.usable(|_| true);
                    all.retain(|(_, state)| state.hints.is_some_and(|hints| names(hints).contains(name)));
                    targets(all)
                };
                let same_node = hinted(|hints| &hints.nodes, &node.name);
                let same_zone =
                    || node.zone.as_ref().map(|zone| hinted(|hints| &hints.zones, zone)).unwrap_or_default();
                let near = if same_node.is_empty() { same_zone() } else { same_node };
                if near.is_empty() { self.all() } else { near }
            }
        }
    }
}

impl<'a> State<'a> {
    fn join(&mut self, other: State<'a>) {
        self.ready |= other.ready;
        self.draining |= other.draining;
        self.hints = self.hints.or(other.hints);
    }
}

fn targets(states: Vec<(Target, State<'_>)>) -> Vec<Target> {
    states.into_iter().map(|(target, _)| target).collect()
}
