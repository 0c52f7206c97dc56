//! Services: packets go to one of the endpoints; policies see the endpoint, never the Service.
//!
//! ```text
//!  a pod ──────────────▶ its node's switch ─────▶ endpoint        source: the pod
//!  a node, the outside ─▶ a gateway router ─────▶ endpoint        source: the router, or the client
//!  a pod, to another node's port ─▶ out of its gateway ─▶ that node's gateway router ─▶ endpoint
//! ```

use std::net::SocketAddr;

use netmodel::{Family, Masquerade};
use objects::NodeFacts;
use topology::desired::host_addresses;

use super::balancers::{Balancing, Entry};
use super::cases::{ADDRESS, ENTRY_NODE, FAMILY, Labels, PortRange, TARGET};
use super::ends::{End, management_address};
use super::vips::{INGRESS, ServiceMatch, Vip};
use super::{Destination, Evaluator, Holder, Packet, PacketPath, Step, Undetermined, step};
use crate::trace::Exit;

/// Endpoints that a step lists by address.
const NAMED: usize = 5;

impl<'a> Evaluator<'a> {
    /// Paths of packets to a Service; None if the destination is not a Service.
    pub(super) fn to_service(
        &self,
        sources: &[End<'a>],
        to: &Destination,
        prior: &[Step],
    ) -> Result<Option<Vec<PacketPath<'a>>>, Undetermined> {
        let vips = match self.match_service(sources, to)? {
            ServiceMatch::NoService => return Ok(None),
            ServiceMatch::Vips(vips) => vips,
            ServiceMatch::NoSuchPort(step) => {
                let chain = [prior, &[step]].concat();
                let ports = PortRange::single(to.protocol, to.port.unwrap_or_default());
                return Ok(Some(vec![unreachable(Labels::default(), ports, chain)]));
            }
        };
        let mut paths = Vec::new();
        for vip in vips {
            if let Some(why) = self.balancers.broken(&vip.service.key) {
                return Err(Undetermined(format!("{}: {why}", vip.object())));
            }
            for source in sources {
                if Family::of(source.address) == Family::of(vip.socket.ip()) {
                    self.send(source, vip, prior, &mut paths);
                }
            }
        }
        Ok(Some(paths))
    }

    /// Adds the paths of packets to an address of a Service.
    fn send(&self, source: &End<'a>, vip: Vip<'a>, prior: &[Step], paths: &mut Vec<PacketPath<'a>>) {
        let mut labels = Labels::default();
        labels[FAMILY] = Some(Family::of(vip.socket.ip()).to_string());
        labels[ADDRESS] = Some(format!("by {}", vip.socket));
        let mut leg = Leg { vip, labels, chain: prior.to_vec(), source: *source, leaves: None };
        if !self.is_in_ranges(&mut leg) {
            return paths.push(leg.unreachable());
        }
        match source.holder {
            Holder::Pod(pod) => {
                let own = pod.node.as_ref().and_then(|node| self.inputs.store.node(node));
                let at_home = own.and_then(|node| {
                    let entry =
                        self.balancers.entry(&vip.service.key, Balancing::Switch, node, vip.socket, vip.protocol)?;
                    Some((node, entry))
                });
                match (at_home, vip.node) {
                    (Some((node, entry)), _) => self.balance(&leg, node, &entry, Balancing::Switch, paths),
                    (None, Some(node)) => {
                        let to = End { holder: Holder::Node(node), address: vip.socket.ip() };
                        leg.leaves =
                            Some(Packet { from: *source, to, protocol: vip.protocol, port: vip.socket.port() });
                        let says = format!("it has the address {}", to.address);
                        leg.chain.push(step(format!("Node {}", node.name), "k8s.ovn.org/host-cidrs", says));
                        match self.exit(&pod.key, to.address, &mut leg.chain) {
                            Some(Exit::Gateway { source, .. }) => {
                                leg.source = End { holder: Holder::Outside, address: source }
                            }
                            Some(Exit::Host { .. }) => {
                                let host = own
                                    .and_then(|own| host_addresses(own, Family::of(vip.socket.ip())).first().copied());
                                let address = host.unwrap_or(source.address);
                                leg.source = End { holder: Holder::Outside, address };
                            }
                            None => return paths.push(leg.unreachable()),
                        }
                        self.enter(leg, node, paths);
                    }
                    (None, None) => paths.push(self.without_entry(leg)),
                }
            }
            Holder::Node(own) => match vip.node {
                Some(node) if node.name != own.name => {
                    let address = host_addresses(own, Family::of(vip.socket.ip())).first().copied();
                    leg.source = End { holder: Holder::Outside, address: address.unwrap_or(source.address) };
                    self.enter(leg, node, paths);
                }
                _ => self.enter(leg, own, paths),
            },
            Holder::Outside => {
                let family = Family::of(vip.socket.ip());
                let has_gateway = |node: &&NodeFacts| {
                    let gateway = node.gateway.valid().and_then(Option::as_ref);
                    gateway.is_some_and(|gateway| gateway.addresses.iter().any(|own| family.matches(own.address())))
                };
                let nodes: Vec<&NodeFacts> = match vip.node {
                    Some(node) => vec![node],
                    None => self.inputs.store.nodes().filter(has_gateway).collect(),
                };
                if nodes.is_empty() {
                    let says = "no node has a gateway for incoming packets";
                    leg.chain.push(step(leg.vip.object(), vip.field, says));
                    return paths.push(leg.unreachable());
                }
                for node in nodes {
                    let mut leg = leg.clone();
                    leg.labels[ENTRY_NODE] = Some(format!("at node {}", node.name));
                    self.enter(leg, node, paths);
                }
            }
        }
    }

    /// Checks `loadBalancerSourceRanges`, which apply to ingress addresses and to all clients.
    fn is_in_ranges(&self, leg: &mut Leg<'a>) -> bool {
        let (vip, ranges) = (leg.vip, &leg.vip.spec.source_ranges);
        if vip.field != INGRESS || ranges.is_empty() {
            return true;
        }
        let client = match leg.source.holder {
            Holder::Pod(_) | Holder::Outside => leg.source.address,
            // Packets of a host to its gateway router have this source.
            Holder::Node(_) => {
                let host = self.inputs.settings.masquerade_address(Masquerade::Host, Family::of(vip.socket.ip()));
                host.unwrap_or(leg.source.address)
            }
        };
        let range = ranges.iter().find(|range| range.contains(client));
        let says = match range {
            Some(range) => format!("{client} is in {range}"),
            None => format!("{client} is in none of its ranges"),
        };
        leg.chain.push(step(vip.object(), "spec.loadBalancerSourceRanges", says));
        range.is_some()
    }

    /// Continues at a node's gateway router.
    fn enter(&self, mut leg: Leg<'a>, node: &'a NodeFacts, paths: &mut Vec<PacketPath<'a>>) {
        let vip = leg.vip;
        let key = &vip.service.key;
        let Some(entry) = self.balancers.entry(key, Balancing::Router, node, vip.socket, vip.protocol) else {
            return paths.push(self.without_entry(leg));
        };
        let family = Family::of(vip.socket.ip());
        let join = || {
            let own = self.inputs.allocator.node(&node.name)?;
            self.inputs.settings.join_address(own.id, family)
        };
        if !entry.keeps_source {
            let address = join().unwrap_or(leg.source.address);
            leg.source = End { holder: Holder::Outside, address };
        } else if let (Holder::Node(_), Some(address)) =
            (leg.source.holder, management_address(&node.name, family, self.inputs))
        {
            leg.source.address = address;
        }
        self.balance(&leg, node, &entry, Balancing::Router, paths);
    }

    fn without_entry(&self, mut leg: Leg<'a>) -> PacketPath<'a> {
        let says = self.balancers.refusal(&leg.vip.service.key);
        let says = says.unwrap_or_else(|| format!("the node has no load balancer for {}", leg.vip.socket));
        leg.chain.push(step(leg.vip.object(), leg.vip.field, says));
        leg.unreachable()
    }

    /// Adds one path per backend of a load balancer.
    fn balance(
        &self,
        leg: &Leg<'a>,
        node: &'a NodeFacts,
        entry: &Entry,
        balancing: Balancing,
        paths: &mut Vec<PacketPath<'a>>,
    ) {
        let vip = leg.vip;
        let mut chain = leg.chain.clone();
        let address = format!("{}/{}", vip.socket, vip.protocol.ovn_name());
        let local = if vip.is_external() {
            (vip.spec.external_local && balancing == Balancing::Router).then_some("spec.externalTrafficPolicy")
        } else {
            vip.spec.internal_local.then_some("spec.internalTrafficPolicy")
        };
        if let Some(field) = local {
            chain.push(step(vip.object(), field, format!("Local: only endpoints of node {}", node.name)));
        }
        if entry.backends.is_empty() {
            let says = match entry.keeps_source {
                true => format!("{address} has no usable endpoint on this node: packets are dropped"),
                false => format!("{address} has no usable endpoint: connections are refused"),
            };
            chain.push(step(vip.object(), vip.field, says));
            return paths.push(Leg { chain, ..leg.clone() }.unreachable());
        }
        let names: Vec<String> = entry.backends.iter().take(NAMED).map(ToString::to_string).collect();
        let more = match entry.backends.len() - names.len() {
            0 => String::new(),
            more => format!(", or {more} more"),
        };
        chain.push(step(vip.object(), vip.field, format!("{address} is sent to {}{more}", names.join(" or "))));
        if balancing == Balancing::Router && !entry.keeps_source {
            let says = format!("GR_{} forwards it with source {}", node.name, leg.source.address);
            chain.push(step(format!("Node {}", node.name), "k8s.ovn.org/l3-gateway-config", says));
        }
        for backend in &entry.backends {
            let leg = Leg { chain: chain.clone(), ..leg.clone() };
            paths.push(self.deliver(leg, node, *backend, balancing));
        }
    }

    /// The path to one endpoint.
    fn deliver(
        &self,
        mut leg: Leg<'a>,
        node: &'a NodeFacts,
        backend: SocketAddr,
        balancing: Balancing,
    ) -> PacketPath<'a> {
        let host = self.inputs.settings.masquerade_address(Masquerade::Host, Family::of(backend.ip()));
        let to = match host == Some(backend.ip()) {
            true => End { holder: Holder::Node(node), address: backend.ip() },
            false => self.addresses.end(backend.ip()),
        };
        let whose = match to.holder {
            Holder::Pod(pod) => format!(" (Pod {})", pod.key),
            Holder::Node(node) => format!(" (Node {})", node.name),
            Holder::Outside => String::new(),
        };
        leg.labels[TARGET] = Some(format!("endpoint {backend}{whose}"));
        leg.chain.extend(self.slice_step(&leg.vip, backend, &whose));
        let lost = matches!(to.holder, Holder::Outside)
            && self.inputs.settings.cluster_of(Family::of(backend.ip())).any(|own| own.contains(backend.ip()));
        if lost {
            let says = "no pod has this address";
            leg.chain.push(step(backend.ip().to_string(), "cluster-subnets", says));
            return leg.unreachable();
        }
        let packet = Packet { from: leg.source, to, protocol: leg.vip.protocol, port: backend.port() };
        if balancing == Balancing::Router {
            return PacketPath { arrives: Some(packet), ..leg.reachable() };
        }
        // No policy applies to a pod that is its own endpoint: its packets return with the hairpin address.
        let itself = leg.source.address == to.address;
        let has_route = self.route(&leg.source, &to, &mut leg.chain).unwrap_or(false);
        let ruled = Some(packet).filter(|_| !itself);
        PacketPath { has_route, leaves: ruled, arrives: ruled, ..leg.reachable() }
    }

    /// The step of the slice that lists an endpoint.
    fn slice_step(&self, vip: &Vip<'a>, backend: SocketAddr, whose: &str) -> Option<Step> {
        self.inputs.store.slices_of(&vip.service.key).find_map(|slice| {
            slice.spec.ports.iter().find(|port| port.port == backend.port() && port.protocol == vip.protocol)?;
            let place = slice.spec.endpoints.iter().position(|endpoint| endpoint.address == backend.ip())?;
            let endpoint = &slice.spec.endpoints[place];
            let state = if endpoint.ready {
                "is ready"
            } else if endpoint.serving && endpoint.terminating {
                "is terminating but serving, and no endpoint is ready"
            } else {
                "is not ready, but the Service publishes not-ready addresses"
            };
            let object = format!("EndpointSlice {}", slice.key);
            Some(step(object, &format!("endpoints[{place}]"), format!("{backend}{whose} {state}")))
        })
    }
}

/// A packet between client and endpoint.
#[derive(Clone)]
struct Leg<'a> {
    vip: Vip<'a>,
    labels: Labels,
    chain: Vec<Step>,
    /// The source that the endpoint sees.
    source: End<'a>,
    /// The packet that egress policies of the sender see, if not the one to the endpoint.
    leaves: Option<Packet<'a>>,
}

impl<'a> Leg<'a> {
    fn reachable(self) -> PacketPath<'a> {
        let ports = PortRange::single(self.vip.protocol, self.vip.port);
        PacketPath {
            labels: self.labels,
            ports,
            chain: self.chain,
            has_route: true,
            leaves: self.leaves,
            arrives: None,
        }
    }

    fn unreachable(self) -> PacketPath<'a> {
        PacketPath { has_route: false, ..self.reachable() }
    }
}

fn unreachable<'a>(labels: Labels, ports: PortRange, chain: Vec<Step>) -> PacketPath<'a> {
    PacketPath { labels, ports, chain, has_route: false, leaves: None, arrives: None }
}
