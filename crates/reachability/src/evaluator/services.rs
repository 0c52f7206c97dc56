//! services: what is sent to a Service goes to one of its endpoints; policies see the endpoint, never the Service.
//!
//! ```text
//!  a pod ──────────────▶ its node's switch ─────▶ endpoint        comes from the pod
//!  a node, the outside ─▶ a gateway router ─────▶ endpoint        comes from the router, or from the client itself
//!  a pod, to another node's port ─▶ out of its gateway ─▶ that node's gateway router ─▶ endpoint
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netmodel::Masquerade;
use objects::{NodeFacts, ObjectKey, Protocol, ServiceFacts, ServicePort, ServiceSpec};
use topology::desired::host_addresses;
use topology::services::{Claim, ServiceInputs, decide};

use super::balancers::{Balancing, Entry};
use super::cases::{ADDRESS, Door, ENTRANCE, FAMILY, Labels, TARGET};
use super::ends::{End, Place, management_address};
use super::{CannotTell, Destination, Flight, Judge, Packet, Party, Step, Who, family, is_single, step};
use crate::trace::Exit;

/// How many endpoints are named.
const NAMED: usize = 5;

/// An address of a Service.
#[derive(Clone, Copy)]
struct Vip<'a> {
    service: &'a ServiceFacts,
    spec: &'a ServiceSpec,
    field: &'static str,
    socket: SocketAddr,
    protocol: Protocol,
    /// The Service's own port, behind which a node's port may stand.
    port: u16,
    /// The node, if it is a port of nodes.
    node: Option<&'a NodeFacts>,
}

impl Vip<'_> {
    fn object(&self) -> String {
        format!("Service {}", self.service.key)
    }

    fn is_external(&self) -> bool {
        self.field != CLUSTER
    }
}

const CLUSTER: &str = "spec.clusterIPs";
const EXTERNAL: &str = "spec.externalIPs";
const INGRESS: &str = "status.loadBalancer.ingress";
const NODE_PORT: &str = "spec.ports.nodePort";

/// What a question that may be about a Service is about.
enum Meant<'a> {
    /// No Service.
    Other,
    /// These addresses.
    Vips(Vec<Vip<'a>>),
    /// A Service that has no such address.
    Nothing(Step),
}

impl<'a> Judge<'a> {
    /// The packets to a Service; none if it is not one that is asked for.
    pub(super) fn to_service(
        &self,
        sources: &[Place<'a>],
        to: &Destination,
        told: &[Step],
    ) -> Result<Option<Vec<Flight<'a>>>, CannotTell> {
        let vips = match self.meant(sources, to)? {
            Meant::Other => return Ok(None),
            Meant::Vips(vips) => vips,
            Meant::Nothing(step) => {
                let chain = [told, &[step]].concat();
                let door = Door::single(to.protocol, to.port.unwrap_or_default());
                return Ok(Some(vec![dead(Labels::default(), door, chain)]));
            }
        };
        let mut flights = Vec::new();
        for vip in vips {
            if let Some(why) = self.balancers.broken(&vip.service.key) {
                return Err(CannotTell(format!("{}: {why}", vip.object())));
            }
            for source in sources {
                if source.end.address.is_ipv6() == vip.socket.is_ipv6() {
                    self.send(source, vip, told, &mut flights);
                }
            }
        }
        Ok(Some(flights))
    }

    fn meant(&self, sources: &[Place<'a>], to: &Destination) -> Result<Meant<'a>, CannotTell> {
        match &to.party {
            Party::Pod(_) => Ok(Meant::Other),
            Party::Service(key) => self.vips_of(key, sources, to),
            Party::Network(prefix) if is_single(*prefix) => Ok(self.vips_at(prefix.network(), to)),
            Party::Network(_) => Ok(Meant::Other),
            Party::Node(name) => {
                let node = self.given.store.node(name);
                let addresses = node.into_iter().flat_map(|node| {
                    self.given.settings.families().filter_map(|v6| host_addresses(node, v6).first().copied())
                });
                let mut vips = Vec::new();
                for address in addresses {
                    if let Meant::Vips(more) = self.vips_at(address, to) {
                        vips.extend(more);
                    }
                }
                Ok(if vips.is_empty() { Meant::Other } else { Meant::Vips(vips) })
            }
        }
    }

    /// The addresses of a Service that one would use.
    fn vips_of(&self, key: &Arc<ObjectKey>, sources: &[Place<'a>], to: &Destination) -> Result<Meant<'a>, CannotTell> {
        let Some(service) = self.given.store.service(key) else { return Ok(Meant::Other) };
        let object = format!("Service {key}");
        if let Some(why) = self.balancers.broken(key) {
            return Err(CannotTell(format!("{object}: {why}")));
        }
        let Some(spec) = service.spec.as_deref() else {
            let why = "has no address of its own (it is headless, a name for another one, or somebody else's)";
            return Err(CannotTell(format!("{object} {why}: ask for the pods behind it")));
        };
        let asked =
            |port: &&ServicePort| to.port.is_none_or(|asked| port.port == asked && port.protocol == to.protocol);
        let ports: Vec<&ServicePort> = spec.ports.iter().filter(asked).collect();
        if ports.is_empty() {
            let known = spec.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol.word()));
            let says = format!("it has no such port: it has {}", known.collect::<Vec<_>>().join(", "));
            return Ok(Meant::Nothing(step(object, "spec.ports", says)));
        }
        let inside = sources.iter().any(|source| !matches!(source.end.who, Who::Outside));
        let mut vips = Vec::new();
        for port in ports {
            let own = |field, address: &IpAddr| Vip {
                service,
                spec,
                field,
                socket: SocketAddr::new(*address, port.port),
                protocol: port.protocol,
                port: port.port,
                node: None,
            };
            if inside {
                vips.extend(spec.cluster_ips.iter().map(|address| own(CLUSTER, address)));
                continue;
            }
            let external = spec.external_ips.iter().map(|address| own(EXTERNAL, address));
            let external: Vec<Vip<'a>> =
                external.chain(spec.ingress_ips.iter().map(|address| own(INGRESS, address))).collect();
            if external.is_empty() {
                let nodes = self.given.store.nodes().filter(|_| port.node_port.is_some());
                vips.extend(nodes.flat_map(|node| self.node_ports(service, spec, port, node)));
            }
            vips.extend(external);
        }
        if vips.is_empty() {
            let says = "it has no address and no node port for clients outside of the cluster";
            return Ok(Meant::Nothing(step(object, "spec.type", says)));
        }
        Ok(Meant::Vips(vips))
    }

    /// A Service's port of a node, by the node's first addresses.
    fn node_ports(
        &self,
        service: &'a ServiceFacts,
        spec: &'a ServiceSpec,
        port: &'a ServicePort,
        node: &'a NodeFacts,
    ) -> Vec<Vip<'a>> {
        let families =
            self.given.settings.families().filter(|v6| spec.cluster_ips.iter().any(|ip| ip.is_ipv6() == *v6));
        let addresses = families.filter_map(|v6| host_addresses(node, v6).first().copied());
        let vip = |address: IpAddr| {
            Some(Vip {
                service,
                spec,
                field: NODE_PORT,
                socket: SocketAddr::new(address, port.node_port?),
                protocol: port.protocol,
                port: port.port,
                node: Some(node),
            })
        };
        addresses.filter_map(vip).collect()
    }

    /// The Services that have an address.
    fn vips_at(&self, address: IpAddr, to: &Destination) -> Meant<'a> {
        let store = self.given.store;
        let fields = |spec: &ServiceSpec| {
            let all = [(CLUSTER, &spec.cluster_ips), (EXTERNAL, &spec.external_ips), (INGRESS, &spec.ingress_ips)];
            all.into_iter().find(|(_, addresses)| addresses.contains(&address)).map(|(field, _)| field)
        };
        let mut known = None;
        let mut vips = Vec::new();
        for service in self.services_at(address) {
            let Some(spec) = service.spec.as_deref() else { continue };
            let Some(field) = fields(spec) else { continue };
            // What was refused is not the Service's: whoever really has the address gets it.
            let decision = decide(service, ServiceInputs { settings: self.given.settings, store });
            let served =
                decision.ports.iter().filter(|port| port.vips.iter().any(|one| one.vip.address() == Some(address)));
            for port in served.map(|served| served.port) {
                if field == CLUSTER {
                    known = Some(service);
                }
                if to.port.is_none_or(|asked| port.port == asked && port.protocol == to.protocol) {
                    let socket = SocketAddr::new(address, port.port);
                    let protocol = port.protocol;
                    vips.push(Vip { service, spec, field, socket, protocol, port: port.port, node: None });
                }
            }
        }
        if let (Who::Node(node), Some(number)) = (self.holders.end(address).who, to.port) {
            let claim = Claim { address: None, port: number, protocol: to.protocol };
            let service = store.claimants(claim).next().and_then(|key| store.service(key));
            if let Some((service, spec)) = service.and_then(|service| Some((service, service.spec.as_deref()?))) {
                let serves = |port: &&ServicePort| port.node_port == Some(number) && port.protocol == to.protocol;
                let family = spec.cluster_ips.iter().any(|ip| ip.is_ipv6() == address.is_ipv6());
                let own = host_addresses(node, address.is_ipv6()).contains(&address);
                if let Some(port) = spec.ports.iter().find(serves).filter(|_| family && own) {
                    let socket = SocketAddr::new(address, number);
                    let (protocol, port) = (port.protocol, port.port);
                    vips.push(Vip { service, spec, field: NODE_PORT, socket, protocol, port, node: Some(node) });
                }
            }
        }
        match known {
            _ if !vips.is_empty() => Meant::Vips(vips),
            Some(service) => {
                let says = format!("{address} is its address, but not with this port");
                Meant::Nothing(step(format!("Service {}", service.key), "spec.ports", says))
            }
            None => Meant::Other,
        }
    }

    /// The packets of a source to an address of a Service.
    fn send(&self, source: &Place<'a>, vip: Vip<'a>, told: &[Step], flights: &mut Vec<Flight<'a>>) {
        let mut labels = Labels::default();
        labels[FAMILY] = Some(family(vip.socket.is_ipv6()));
        labels[ADDRESS] = Some(format!("by {}", vip.socket));
        let mut way = Leg { vip, labels, chain: told.to_vec(), source: source.end, leaves: None };
        if !self.is_in_ranges(&mut way) {
            return flights.push(way.dead());
        }
        match source.end.who {
            Who::Pod(pod) => {
                let own = pod.node.as_ref().and_then(|node| self.given.store.node(node));
                let at_home = own.and_then(|node| {
                    let entry =
                        self.balancers.entry(&vip.service.key, Balancing::Switch, node, vip.socket, vip.protocol)?;
                    Some((node, entry))
                });
                match (at_home, vip.node) {
                    (Some((node, entry)), _) => self.spread(&way, node, &entry, Balancing::Switch, flights),
                    (None, Some(node)) => {
                        let to = End { who: Who::Node(node), address: vip.socket.ip() };
                        way.leaves =
                            Some(Packet { from: source.end, to, protocol: vip.protocol, port: vip.socket.port() });
                        let says = format!("it has the address {}", to.address);
                        way.chain.push(step(format!("Node {}", node.name), "k8s.ovn.org/host-cidrs", says));
                        match self.exit(&pod.key, to.address, &mut way.chain) {
                            Some(Exit::Gateway { source, .. }) => {
                                way.source = End { who: Who::Outside, address: source }
                            }
                            Some(Exit::Host { .. }) => {
                                let host =
                                    own.and_then(|own| host_addresses(own, vip.socket.is_ipv6()).first().copied());
                                let address = host.unwrap_or(source.end.address);
                                way.source = End { who: Who::Outside, address };
                            }
                            None => return flights.push(way.dead()),
                        }
                        self.enter(way, node, flights);
                    }
                    (None, None) => flights.push(self.without_entry(way)),
                }
            }
            Who::Node(own) => match vip.node {
                Some(node) if node.name != own.name => {
                    let address = host_addresses(own, vip.socket.is_ipv6()).first().copied();
                    way.source = End { who: Who::Outside, address: address.unwrap_or(source.end.address) };
                    self.enter(way, node, flights);
                }
                _ => self.enter(way, own, flights),
            },
            Who::Outside => {
                let v6 = vip.socket.is_ipv6();
                let has_gateway = |node: &&NodeFacts| {
                    let gateway = node.gateway.valid().and_then(Option::as_ref);
                    gateway.is_some_and(|gateway| gateway.addresses.iter().any(|own| own.address().is_ipv6() == v6))
                };
                let nodes: Vec<&NodeFacts> = match vip.node {
                    Some(node) => vec![node],
                    None => self.given.store.nodes().filter(has_gateway).collect(),
                };
                if nodes.is_empty() {
                    let says = "no node has a gateway by which anything comes in";
                    way.chain.push(step(way.vip.object(), vip.field, says));
                    return flights.push(way.dead());
                }
                for node in nodes {
                    let mut way = way.clone();
                    way.labels[ENTRANCE] = Some(format!("at node {}", node.name));
                    self.enter(way, node, flights);
                }
            }
        }
    }

    /// Whether a client may use the address: ranges are for those of load balancers, and for everybody.
    fn is_in_ranges(&self, way: &mut Leg<'a>) -> bool {
        let (vip, ranges) = (way.vip, &way.vip.spec.source_ranges);
        if vip.field != INGRESS || ranges.is_empty() {
            return true;
        }
        let client = match way.source.who {
            Who::Pod(_) | Who::Outside => way.source.address,
            // So a host sends what goes by its gateway router.
            Who::Node(_) => {
                let host = self.given.settings.masquerade_address(Masquerade::Host, vip.socket.is_ipv6());
                host.unwrap_or(way.source.address)
            }
        };
        let range = ranges.iter().find(|range| range.contains(client));
        let says = match range {
            Some(range) => format!("{client} is in {range}"),
            None => format!("none of its ranges has {client}"),
        };
        way.chain.push(step(vip.object(), "spec.loadBalancerSourceRanges", says));
        range.is_some()
    }

    /// What comes to a node's gateway router.
    fn enter(&self, mut way: Leg<'a>, node: &'a NodeFacts, flights: &mut Vec<Flight<'a>>) {
        let vip = way.vip;
        let key = &vip.service.key;
        let Some(entry) = self.balancers.entry(key, Balancing::Router, node, vip.socket, vip.protocol) else {
            return flights.push(self.without_entry(way));
        };
        let v6 = vip.socket.is_ipv6();
        let join = || {
            let own = self.given.allocator.node(&node.name)?;
            self.given.settings.join_address(own.id, v6)
        };
        if !entry.keeps_source {
            let address = join().unwrap_or(way.source.address);
            way.source = End { who: Who::Outside, address };
        } else if let (Who::Node(_), Some(address)) = (way.source.who, management_address(&node.name, v6, self.given)) {
            way.source.address = address;
        }
        self.spread(&way, node, &entry, Balancing::Router, flights);
    }

    fn without_entry(&self, mut way: Leg<'a>) -> Flight<'a> {
        let says = self.balancers.refusal(&way.vip.service.key);
        let says = says.unwrap_or_else(|| format!("the node has no load balancer for {}", way.vip.socket));
        way.chain.push(step(way.vip.object(), way.vip.field, says));
        way.dead()
    }

    /// What a load balancer makes of it.
    fn spread(
        &self,
        way: &Leg<'a>,
        node: &'a NodeFacts,
        entry: &Entry,
        balancing: Balancing,
        flights: &mut Vec<Flight<'a>>,
    ) {
        let vip = way.vip;
        let mut chain = way.chain.clone();
        let door = format!("{}/{}", vip.socket, vip.protocol.word());
        let local = if vip.is_external() {
            (vip.spec.external_local && balancing == Balancing::Router).then_some("spec.externalTrafficPolicy")
        } else {
            vip.spec.internal_local.then_some("spec.internalTrafficPolicy")
        };
        if let Some(field) = local {
            chain.push(step(vip.object(), field, format!("Local: only endpoints of node {} count", node.name)));
        }
        if entry.backends.is_empty() {
            let says = match entry.keeps_source {
                true => format!("{door} has no endpoint that works on this node: packets are dropped"),
                false => format!("{door} has no endpoint that works: connections are refused"),
            };
            chain.push(step(vip.object(), vip.field, says));
            return flights.push(Leg { chain, ..way.clone() }.dead());
        }
        let names: Vec<String> = entry.backends.iter().take(NAMED).map(ToString::to_string).collect();
        let more = match entry.backends.len() - names.len() {
            0 => String::new(),
            more => format!(", or {more} more"),
        };
        chain.push(step(vip.object(), vip.field, format!("{door} is sent to {}{more}", names.join(" or "))));
        if balancing == Balancing::Router && !entry.keeps_source {
            let says = format!("GR_{} sends it on as {}", node.name, way.source.address);
            chain.push(step(format!("Node {}", node.name), "k8s.ovn.org/l3-gateway-config", says));
        }
        for backend in &entry.backends {
            let way = Leg { chain: chain.clone(), ..way.clone() };
            flights.push(self.deliver(way, node, *backend, balancing));
        }
    }

    /// The packets to one endpoint.
    fn deliver(&self, mut way: Leg<'a>, node: &'a NodeFacts, backend: SocketAddr, balancing: Balancing) -> Flight<'a> {
        let host = self.given.settings.masquerade_address(Masquerade::Host, backend.is_ipv6());
        let to = match host == Some(backend.ip()) {
            true => End { who: Who::Node(node), address: backend.ip() },
            false => self.holders.end(backend.ip()),
        };
        let whose = match to.who {
            Who::Pod(pod) => format!(" (Pod {})", pod.key),
            Who::Node(node) => format!(" (Node {})", node.name),
            Who::Outside => String::new(),
        };
        way.labels[TARGET] = Some(format!("endpoint {backend}{whose}"));
        way.chain.extend(self.told_by_slice(&way.vip, backend, &whose));
        let lost = matches!(to.who, Who::Outside)
            && self.given.settings.cluster_of(backend.is_ipv6()).any(|own| own.contains(backend.ip()));
        if lost {
            let says = "it is an address of the cluster that no pod has";
            way.chain.push(step(backend.ip().to_string(), "cluster-subnets", says));
            return way.dead();
        }
        let packet = Packet { from: way.source, to, protocol: way.vip.protocol, port: backend.port() };
        if balancing == Balancing::Router {
            return Flight { arrives: Some(packet), ..way.alive() };
        }
        // A pod that is its own endpoint meets no rule: what comes back to it has an address that all rules allow.
        let itself = way.source.address == to.address;
        let there = self.way(&way.source, &to, &mut way.chain).unwrap_or(false);
        let ruled = Some(packet).filter(|_| !itself);
        Flight { way: there, leaves: ruled, arrives: ruled, ..way.alive() }
    }

    /// The slice that names an endpoint.
    fn told_by_slice(&self, vip: &Vip<'a>, backend: SocketAddr, whose: &str) -> Option<Step> {
        self.given.store.slices_of(&vip.service.key).find_map(|slice| {
            slice.spec.ports.iter().find(|port| port.port == backend.port() && port.protocol == vip.protocol)?;
            let place = slice.spec.endpoints.iter().position(|endpoint| endpoint.address == backend.ip())?;
            let endpoint = &slice.spec.endpoints[place];
            let state = if endpoint.ready {
                "is ready"
            } else if endpoint.serving && endpoint.terminating {
                "is on its way out and still answers, and none is ready"
            } else {
                "is not ready, and the Service publishes it all the same"
            };
            let object = format!("EndpointSlice {}", slice.key);
            Some(step(object, &format!("endpoints[{place}]"), format!("{backend}{whose} {state}")))
        })
    }
}

/// A packet on its way to an endpoint.
#[derive(Clone)]
struct Leg<'a> {
    vip: Vip<'a>,
    labels: Labels,
    chain: Vec<Step>,
    /// Whom the endpoint takes for the sender.
    source: End<'a>,
    /// What the sender's rules see, if that is not the endpoint.
    leaves: Option<Packet<'a>>,
}

impl<'a> Leg<'a> {
    fn alive(self) -> Flight<'a> {
        let door = Door::single(self.vip.protocol, self.vip.port);
        Flight { labels: self.labels, door, chain: self.chain, way: true, leaves: self.leaves, arrives: None }
    }

    fn dead(self) -> Flight<'a> {
        Flight { way: false, ..self.alive() }
    }
}

fn dead<'a>(labels: Labels, door: Door, chain: Vec<Step>) -> Flight<'a> {
    Flight { labels, door, chain, way: false, leaves: None, arrives: None }
}
