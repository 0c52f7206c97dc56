//! What stands behind a port of a Service, and which of it a client gets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::desired::Given;
use crate::desired::balancer::socket;
use crate::desired::template::host_addresses;
use crate::identity::{Name, ObjectKey};
use crate::objects::{Hints, NodeFacts, ServicePort};
use crate::settings::Masquerade;

/// One endpoint, as all slices together tell of it.
#[derive(Debug, Clone, Default)]
struct Candidate<'a> {
    node: Option<&'a Name>,
    ready: bool,
    /// On its way out, and still answering.
    lingering: bool,
    hints: Option<&'a Hints>,
}

/// What stands behind one port of a Service, of one family.
#[derive(Debug)]
pub(super) struct Endpoints<'a> {
    /// By address and port: slices may overlap, and their order means nothing.
    candidates: BTreeMap<(IpAddr, u16), Candidate<'a>>,
    publish_not_ready: bool,
    /// Nodes that some of them are on with the host's own address.
    hosts: Vec<&'a NodeFacts>,
}

/// Which endpoints clients of one node get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
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
        given: Given<'a>,
    ) -> Self {
        let mut candidates: BTreeMap<(IpAddr, u16), Candidate<'a>> = BTreeMap::new();
        for slice in given.store.slices_of(service) {
            let ports = slice.spec.ports.iter();
            for target in ports.filter(|target| target.name == port.name && target.protocol == port.protocol) {
                for endpoint in slice.spec.endpoints.iter().filter(|endpoint| endpoint.address.is_ipv6() == v6) {
                    let known = candidates.entry((endpoint.address, target.port)).or_default();
                    // Where slices disagree, the better word counts.
                    known.ready |= endpoint.ready;
                    known.lingering |= endpoint.serving && endpoint.terminating;
                    known.node = known.node.max(endpoint.node.as_ref());
                    known.hints = known.hints.or(endpoint.hints.as_deref());
                }
            }
        }
        let pods: Vec<_> = given.settings.cluster_of(v6).collect();
        let outside = |address: &IpAddr| !pods.iter().any(|pods| pods.contains(*address));
        let strangers: Vec<IpAddr> = candidates.keys().map(|(address, _)| *address).filter(outside).collect();
        let hosts = match strangers.is_empty() {
            true => Vec::new(),
            false => {
                let on = |node: &&NodeFacts| host_addresses(node, v6).iter().any(|own| strangers.contains(own));
                given.store.nodes().filter(on).collect()
            }
        };
        Self { candidates, publish_not_ready, hosts }
    }

    /// Whether some are on hosts' own addresses: a gateway router does not reach its own host by them.
    pub(super) fn on_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whether there are none at all.
    pub(super) fn is_empty(&self) -> bool {
        self.usable(|_| true).is_empty()
    }

    /// Whether somebody said whom each of them is meant for.
    pub(super) fn are_hinted(&self) -> bool {
        let usable = self.usable(|_| true);
        !usable.is_empty() && usable.iter().all(|(_, candidate)| candidate.hints.is_some())
    }

    fn usable(&self, which: impl Fn(&Candidate<'a>) -> bool) -> Vec<(&(IpAddr, u16), &Candidate<'a>)> {
        let among = || self.candidates.iter().filter(|(_, candidate)| which(candidate));
        let ready: Vec<_> = among().filter(|(_, candidate)| candidate.ready || self.publish_not_ready).collect();
        if !ready.is_empty() {
            return ready;
        }
        among().filter(|(_, candidate)| candidate.lingering).collect()
    }

    /// What every client gets, as a load balancer writes it.
    pub(super) fn all(&self) -> String {
        written(self.usable(|_| true).into_iter().map(|(place, _)| *place))
    }

    /// What clients of a node get; `router` is what its gateway router has to write.
    pub(super) fn of_node(&self, choice: Choice, node: &NodeFacts, router: bool, given: Given<'_>) -> String {
        let chosen = match choice {
            Choice::All => self.usable(|_| true),
            Choice::Local => self.usable(|candidate| candidate.node == Some(&node.name)),
            Choice::Hinted => {
                let meant = |names: fn(&Hints) -> &[Name], name: &Name| -> Vec<_> {
                    let mut all = self.usable(|_| true);
                    all.retain(|(_, candidate)| candidate.hints.is_some_and(|hints| names(hints).contains(name)));
                    all
                };
                let same_node = meant(|hints| &hints.nodes, &node.name);
                let same_zone = || node.zone.as_ref().map(|zone| meant(|hints| &hints.zones, zone)).unwrap_or_default();
                let near = if same_node.is_empty() { same_zone() } else { same_node };
                if near.is_empty() { self.usable(|_| true) } else { near }
            }
        };
        let own = |address: IpAddr| {
            router
                && self.hosts.iter().any(|host| host.name == node.name)
                && host_addresses(node, address.is_ipv6()).contains(&address)
        };
        written(chosen.into_iter().map(|((address, port), _)| {
            let host = own(*address).then(|| given.settings.masquerade_address(Masquerade::Host, address.is_ipv6()));
            (host.flatten().unwrap_or(*address), *port)
        }))
    }
}

fn written(places: impl Iterator<Item = (IpAddr, u16)>) -> String {
    let places: Vec<String> = places.map(|(address, port)| socket(address, port)).collect();
    places.join(",")
}
