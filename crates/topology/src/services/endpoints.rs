//! The endpoints of a Service's port, and which of them a client gets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Inputs;
use crate::desired::host_addresses;
use crate::identity::{Name, ObjectKey};
use crate::objects::{Hints, NodeFacts, ServicePort};

/// An endpoint's address and port.
pub type Target = (IpAddr, u16);

/// What the slices that name an endpoint on the same node say of it together.
#[derive(Debug, Clone, Copy, Default)]
struct State<'a> {
    ready: bool,
    /// Terminating, and still serving.
    lingering: bool,
    hints: Option<&'a Hints>,
}

/// The endpoints of one port of a Service, of one family.
#[derive(Debug)]
pub struct Endpoints<'a> {
    /// By node as well: slices may overlap and disagree, and "on this node" is judged by the slices that say so alone. So
    /// an agent that keeps only the endpoints of its own node comes to the same result.
    states: BTreeMap<(Target, Option<&'a Name>), State<'a>>,
    publish_not_ready: bool,
    /// Nodes whose own addresses are among them.
    hosts: Vec<&'a NodeFacts>,
}

/// Which endpoints clients of one node get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// All that work.
    All,
    /// Those that are meant for clients on the node, if there are any.
    Hinted,
    /// Those on the node itself.
    Local,
}

impl<'a> Endpoints<'a> {
    pub(super) fn of(
        service: &ObjectKey,
        port: &ServicePort,
        v6: bool,
        publish_not_ready: bool,
        inputs: Inputs<'a>,
    ) -> Self {
        let mut states: BTreeMap<(Target, Option<&'a Name>), State<'a>> = BTreeMap::new();
        for slice in inputs.store.slices_of(service) {
            let ports = slice.spec.ports.iter();
            for target in ports.filter(|target| target.name == port.name && target.protocol == port.protocol) {
                for endpoint in slice.spec.endpoints.iter().filter(|endpoint| endpoint.address.is_ipv6() == v6) {
                    let key = ((endpoint.address, target.port), endpoint.node.as_ref());
                    // Where slices disagree, the better state counts.
                    states.entry(key).or_default().join(State {
                        ready: endpoint.ready,
                        lingering: endpoint.serving && endpoint.terminating,
                        hints: endpoint.hints.as_deref(),
                    });
                }
            }
        }
        let pods: Vec<_> = inputs.settings.cluster_of(v6).collect();
        let outside = |address: &IpAddr| !pods.iter().any(|pods| pods.contains(*address));
        let strangers: Vec<IpAddr> = states.keys().map(|((address, _), _)| *address).filter(outside).collect();
        let hosts = match strangers.is_empty() {
            true => Vec::new(),
            false => {
                let on = |node: &&NodeFacts| host_addresses(node, v6).iter().any(|own| strangers.contains(own));
                inputs.store.nodes().filter(on).collect()
            }
        };
        Self { states, publish_not_ready, hosts }
    }

    /// Whether some are on hosts' own addresses: a gateway router does not reach its own host by them.
    pub fn on_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whether a node is among those with endpoints on its own addresses.
    pub fn is_host(&self, node: &NodeFacts) -> bool {
        self.hosts.iter().any(|host| host.name == node.name)
    }

    /// Whether none works.
    pub fn is_empty(&self) -> bool {
        self.usable(|_| true).is_empty()
    }

    /// Whether all have hints.
    pub fn are_hinted(&self) -> bool {
        let usable = self.usable(|_| true);
        !usable.is_empty() && usable.iter().all(|(_, state)| state.hints.is_some())
    }

    /// Those that are ready; if none is, those that terminate and still serve.
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
            known.retain(|(_, state)| state.lingering);
        }
        known
    }

    /// What every client gets.
    pub fn all(&self) -> Vec<Target> {
        targets(self.usable(|_| true))
    }

    /// What clients get from endpoints of one node alone.
    pub fn local(&self, node: &str) -> Vec<Target> {
        targets(self.usable(|name| name.is_some_and(|name| **name == *node)))
    }

    /// What clients of a node get.
    pub fn of_node(&self, choice: Choice, node: &NodeFacts) -> Vec<Target> {
        match choice {
            Choice::All => self.all(),
            Choice::Local => self.local(&node.name),
            Choice::Hinted => {
                let meant = |names: fn(&Hints) -> &[Name], name: &Name| -> Vec<Target> {
                    let mut all = self.usable(|_| true);
                    all.retain(|(_, state)| state.hints.is_some_and(|hints| names(hints).contains(name)));
                    targets(all)
                };
                let same_node = meant(|hints| &hints.nodes, &node.name);
                let same_zone = || node.zone.as_ref().map(|zone| meant(|hints| &hints.zones, zone)).unwrap_or_default();
                let near = if same_node.is_empty() { same_zone() } else { same_node };
                if near.is_empty() { self.all() } else { near }
            }
        }
    }
}

impl<'a> State<'a> {
    fn join(&mut self, other: State<'a>) {
        self.ready |= other.ready;
        self.lingering |= other.lingering;
        self.hints = self.hints.or(other.hints);
    }
}

fn targets(states: Vec<(Target, State<'_>)>) -> Vec<Target> {
    states.into_iter().map(|(target, _)| target).collect()
}
