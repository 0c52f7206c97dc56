//! Whether packets of one party reach another, and the chain of rules that decides it, each with its object and field.
//!
//! ```text
//!  from, to ──▶ addresses ──▶ endpoint of a Service ──────▶ route ──────▶ policies ──────▶ yes, no, or what it depends on
//!               `ends`        `vips`, `services`,           `routing`,    `policies`,      `cases`
//!                             `balancers`, `host_ports`     `trace`       `blocks`
//! ```
//!
//! A question may be about many packets: of both families, to all ports, to all endpoints, from a whole network (`networks`
//! splits it into parts whose addresses are equivalent). Each kind of packet is evaluated separately; `cases` combines them.

mod balancers;
mod blocks;
mod cases;
mod ends;
mod host_ports;
mod networks;
mod parse;
mod policies;
mod routing;
mod services;
mod vips;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use netmodel::Prefix;
use objects::{Name, ObjectKey, PodKey, Protocol, ServiceFacts};
use topology::desired::Inputs;
use topology::rules::Direction;

use self::balancers::Balancers;
use self::cases::{Labels, Outcome, PortRange, combine};
use self::ends::{AddressIndex, Holder, Packet, Side};
use self::networks::Boundaries;
pub use self::parse::{parse_destination, parse_party};
use self::policies::Policies;
use crate::trace::Network;

/// A source or destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    /// With `hostNetwork`, its node is meant.
    Pod(Arc<PodKey>),
    /// Only as a destination.
    Service(Arc<ObjectKey>),
    /// The host: kubelet, pods with `hostNetwork`.
    Node(Name),
    /// Addresses; a single one is a network of one.
    Network(Prefix),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "Pod {key}"),
            Self::Service(key) => write!(f, "Service {key}"),
            Self::Node(name) => write!(f, "Node {name}"),
            Self::Network(prefix) if is_single(*prefix) => write!(f, "{}", prefix.network()),
            Self::Network(prefix) => write!(f, "{prefix}"),
        }
    }
}

/// A destination with protocol and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Pod, Service, node or network.
    pub party: Party,
    /// Ignored without a port.
    pub protocol: Protocol,
    /// None: all ports of all protocols.
    pub port: Option<u16>,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{} port {port}/{}", self.party, self.protocol.ovn_name()),
            None => write!(f, "{}", self.party),
        }
    }
}

/// One reason in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// Kind and name.
    pub object: String,
    /// Field, annotation or setting.
    pub field: String,
    /// What follows from it for these packets.
    pub says: String,
}

/// Whether all, none or some of the packets arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every packet of the question arrives.
    Yes,
    /// No packet of the question arrives.
    No,
    /// Some: the cases say which.
    Partial,
}

/// The verdict and its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// About the first packets of connections.
    pub verdict: Verdict,
    /// In order; the last step decides. If partial, the steps that all cases share.
    pub chain: Vec<Step>,
    /// Empty unless partial.
    pub cases: Vec<Case>,
}

/// Packets that all arrive, or all do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Family, addresses, endpoints and ports of these packets.
    pub what: String,
    /// Whether they arrive.
    pub yes: bool,
    /// The steps after those that all cases share.
    pub chain: Vec<Step>,
}

/// The question cannot be evaluated; the text says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Undetermined(pub String);

/// Evaluates one question; for several, use one [`Evaluator`].
pub fn evaluate(inputs: Inputs<'_>, from: &Party, to: &Destination) -> Result<Evaluation, Undetermined> {
    Evaluator::new(inputs).evaluate(from, to)
}

/// One kind of packet between its ends.
struct PacketPath<'a> {
    labels: Labels,
    ports: PortRange,
    chain: Vec<Step>,
    /// Before policies.
    has_route: bool,
    /// As egress policies of the sender see it.
    leaves: Option<Packet<'a>>,
    /// As ingress policies of the receiver see it.
    arrives: Option<Packet<'a>>,
}

/// Evaluates reachability in one state of the cluster; caches what questions have in common.
pub struct Evaluator<'a> {
    inputs: Inputs<'a>,
    network: RefCell<Network>,
    addresses: AddressIndex<'a>,
    policies: Policies<'a>,
    balancers: Balancers<'a>,
    boundaries: OnceCell<Boundaries>,
    all_ports: OnceCell<Rc<[PortRange]>>,
    services: OnceCell<BTreeMap<IpAddr, Vec<&'a ServiceFacts>>>,
}

impl fmt::Debug for Evaluator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evaluator").finish_non_exhaustive()
    }
}

impl<'a> Evaluator<'a> {
    /// Computes the rows of the cluster and of all nodes.
    pub fn new(inputs: Inputs<'a>) -> Self {
        Self {
            inputs,
            network: RefCell::new(Network::of(inputs)),
            addresses: AddressIndex::of(inputs),
            policies: Policies::of(inputs),
            balancers: Balancers::of(inputs),
            boundaries: OnceCell::new(),
            all_ports: OnceCell::new(),
            services: OnceCell::new(),
        }
    }

    /// Whether packets of one party reach the destination.
    pub fn evaluate(&self, from: &Party, to: &Destination) -> Result<Evaluation, Undetermined> {
        let (sources, mut left_out) = self.parts(from);
        let (targets, more) = self.parts(&to.party);
        left_out.extend(more);
        let mut found = Vec::new();
        for source in &sources {
            for target in &targets {
                let to = Destination { party: target.party.clone(), ..*to };
                for mut one in self.packets(&source.party, &to)? {
                    (one.from, one.to) = (source.ranges.clone(), target.ranges.clone());
                    found.push(one);
                }
            }
        }
        let mut answer = combine(&found);
        answer.chain.splice(0..0, left_out);
        Ok(answer)
    }

    /// Outcomes between two parties of which neither is a whole network; at least one.
    fn packets(&self, from: &Party, to: &Destination) -> Result<Vec<Outcome>, Undetermined> {
        let mut chain = Vec::new();
        let unreachable = |chain| {
            let ports = match to.port {
                Some(port) => PortRange::single(to.protocol, port),
                None => PortRange { protocol: to.protocol, first: 1, last: u16::MAX },
            };
            Ok(vec![Outcome { labels: Labels::default(), from: None, to: None, ports, yes: false, chain }])
        };
        let Some(sources) = self.ends(from, Side::Source, &mut chain)? else { return unreachable(chain) };
        let redirected = match self.to_service(&sources, to, &chain)? {
            Some(paths) => Some(paths),
            None => self.to_host_port(&sources, to, &chain),
        };
        let paths = match redirected {
            Some(paths) => paths,
            None => {
                let Some(targets) = self.ends(&to.party, Side::Destination, &mut chain)? else {
                    return unreachable(chain);
                };
                // A party that sends to itself has the same step twice.
                chain.dedup();
                self.direct_paths(&sources, &targets, to, &chain)?
            }
        };
        let found: Vec<Outcome> = paths.into_iter().map(|path| self.apply_policies(path)).collect::<Result<_, _>>()?;
        if found.is_empty() {
            let says = "no address family in common";
            chain.push(step(to.party.to_string(), "status.podIPs", says));
            return unreachable(chain);
        }
        Ok(found)
    }

    /// Applies the policies of both ends, if there is a route.
    fn apply_policies(&self, path: PacketPath<'a>) -> Result<Outcome, Undetermined> {
        let PacketPath { labels, ports, mut chain, has_route, leaves, arrives } = path;
        let mut yes = has_route;
        for (direction, packet) in [(Direction::Egress, leaves), (Direction::Ingress, arrives)] {
            if let Some(packet) = packet.filter(|_| yes) {
                yes = self.policies.admit(direction, &packet, &mut chain)?;
            }
        }
        Ok(Outcome { labels, from: None, to: None, ports, yes, chain })
    }

    /// The requested ports, in ranges that no policy distinguishes.
    fn port_ranges(&self, to: &Destination) -> Rc<[PortRange]> {
        let all = || {
            let protocols = Protocol::ALL.into_iter();
            protocols.flat_map(|protocol| PortRange::all(protocol, self.policies.ranges(protocol))).collect()
        };
        match to.port {
            Some(port) => Rc::new([PortRange::single(to.protocol, port)]),
            None => self.all_ports.get_or_init(all).clone(),
        }
    }

    /// Services with this cluster, external or ingress IP.
    fn services_at(&self, address: IpAddr) -> impl Iterator<Item = &'a ServiceFacts> {
        let index = || {
            let mut index: BTreeMap<IpAddr, Vec<&'a ServiceFacts>> = BTreeMap::new();
            for service in self.inputs.store.services() {
                let addresses = service
                    .spec
                    .iter()
                    .flat_map(|spec| [&spec.cluster_ips, &spec.external_ips, &spec.ingress_ips].into_iter().flatten());
                for address in addresses.copied().collect::<BTreeSet<_>>() {
                    index.entry(address).or_default().push(service);
                }
            }
            index
        };
        self.services.get_or_init(index).get(&address).into_iter().flatten().copied()
    }
}

fn is_single(prefix: Prefix) -> bool {
    prefix.length() == prefix.family().bits()
}

fn step(object: String, field: &str, says: impl Into<String>) -> Step {
    Step { object, field: field.to_owned(), says: says.into() }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)]
mod tests;
