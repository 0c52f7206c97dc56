//! can: whether one may talk to another, and the chain of rules that decides it, each with its object and field.
//!
//! ```text
//!  from, to ──▶ who they are ──▶ which endpoint of a Service ──▶ is there a way ──▶ do policies let it through
//!               `ends`           `services`, `balancers`,        `way`, `reach`     `policies`        │
//!                                or pod of a node's port: `host_ports`                                │
//!                                                                       yes, no, or on what it depends ◀── `cases`
//! ```
//!
//! A question may be about many packets: of both families, to any port, to any endpoint, from a whole network (`networks`
//! cuts it into parts of addresses that are alike). Each kind of packet is followed by itself, and `cases` puts the answers
//! together.

mod balancers;
mod blocks;
mod cases;
mod ends;
mod host_ports;
mod networks;
mod policies;
mod services;
mod way;
mod words;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use netmodel::Prefix;

use self::balancers::Balancers;
use self::cases::{Door, Found, Labels, combine};
use self::ends::{Holders, Packet, Side, Who};
use self::networks::Boundaries;
use self::policies::Policies;
pub use words::{understand, understand_party};

use crate::trace::Network;
use objects::{Name, ObjectKey, PodKey, Protocol, ServiceFacts};
use topology::desired::Inputs;
use topology::rules::Direction;

/// Who talks, or is talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    /// A pod.
    Pod(Arc<PodKey>),
    /// A Service.
    Service(Arc<ObjectKey>),
    /// A node itself: the kubelet, pods on the host's network.
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

/// Whom it is talked to, and by which door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Who.
    pub party: Party,
    /// The protocol.
    pub protocol: Protocol,
    /// The port; none asks for any.
    pub port: Option<u16>,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{} port {port}/{}", self.party, self.protocol.word()),
            None => write!(f, "{}", self.party),
        }
    }
}

/// One rule of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// The object that says it.
    pub object: String,
    /// Where in the object.
    pub field: String,
    /// What it says here.
    pub says: String,
}

/// What is said of everything that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All of it arrives.
    Yes,
    /// Nothing of it does.
    No,
    /// Some of it does: the cases say what.
    Some,
}

/// Yes or no, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the first packets of connections arrive.
    pub verdict: Verdict,
    /// What decides it, in order; the last one is the one that does. Where it depends, what all cases share.
    pub chain: Vec<Step>,
    /// Where it depends, on what.
    pub cases: Vec<Case>,
}

/// A part of what was asked for, of which yes or no can be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Which part.
    pub what: String,
    /// Whether it arrives.
    pub yes: bool,
    /// What decides it, behind what all cases share.
    pub chain: Vec<Step>,
}

/// A question that has no answer here: better none than a wrong one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotTell(pub String);

/// Whether packets of one come to the other.
pub fn decide(given: Inputs<'_>, from: &Party, to: &Destination) -> Result<Answer, CannotTell> {
    Judge::new(given).decide(from, to)
}

/// One kind of packet on its way.
struct Flight<'a> {
    labels: Labels,
    door: Door,
    chain: Vec<Step>,
    /// Whether there is a way at all.
    way: bool,
    /// As the rules of the sender see it, if it is a pod.
    leaves: Option<Packet<'a>>,
    /// As the rules of the receiver see it.
    arrives: Option<Packet<'a>>,
}

/// Answers questions about one state of the cluster; many cost little more than one.
pub struct Judge<'a> {
    given: Inputs<'a>,
    network: RefCell<Network>,
    holders: Holders<'a>,
    policies: Policies<'a>,
    balancers: Balancers<'a>,
    boundaries: OnceCell<Boundaries>,
    all_doors: OnceCell<Rc<[Door]>>,
    services: OnceCell<BTreeMap<IpAddr, Vec<&'a ServiceFacts>>>,
}

impl fmt::Debug for Judge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl<'a> Judge<'a> {
    /// Looks at what is given.
    pub fn new(given: Inputs<'a>) -> Self {
        Self {
            given,
            network: RefCell::new(Network::of(given)),
            holders: Holders::of(given),
            policies: Policies::of(given),
            balancers: Balancers::of(given),
            boundaries: OnceCell::new(),
            all_doors: OnceCell::new(),
            services: OnceCell::new(),
        }
    }

    /// Whether packets of one come to the other.
    pub fn decide(&self, from: &Party, to: &Destination) -> Result<Answer, CannotTell> {
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

    /// What becomes of all packets from one to another, neither of them a whole network. There is at least one.
    fn packets(&self, from: &Party, to: &Destination) -> Result<Vec<Found>, CannotTell> {
        let mut chain = Vec::new();
        let nowhere = |chain| {
            let door = match to.port {
                Some(port) => Door::single(to.protocol, port),
                None => Door { protocol: to.protocol, first: 1, last: u16::MAX },
            };
            Ok(vec![Found { labels: Labels::default(), from: None, to: None, door, yes: false, chain }])
        };
        let Some(sources) = self.places(from, Side::Source, &mut chain)? else { return nowhere(chain) };
        let led = match self.to_service(&sources, to, &chain)? {
            Some(flights) => Some(flights),
            None => self.to_host_port(&sources, to, &chain),
        };
        let flights = match led {
            Some(flights) => flights,
            None => {
                let Some(targets) = self.places(&to.party, Side::Destination, &mut chain)? else {
                    return nowhere(chain);
                };
                // Who talks to itself is told once.
                chain.dedup();
                self.direct(&sources, &targets, to, &chain)?
            }
        };
        let found: Vec<Found> = flights.into_iter().map(|flight| self.judge(flight)).collect::<Result<_, _>>()?;
        if found.is_empty() {
            let says = "they have no address of the same family";
            chain.push(step(to.party.to_string(), "status.podIPs", says));
            return nowhere(chain);
        }
        Ok(found)
    }

    /// Whether a packet that has a way is let through by rules.
    fn judge(&self, flight: Flight<'a>) -> Result<Found, CannotTell> {
        let Flight { labels, door, mut chain, way, leaves, arrives } = flight;
        let mut yes = way;
        for (direction, packet) in [(Direction::Egress, leaves), (Direction::Ingress, arrives)] {
            if let Some(packet) = packet.filter(|_| yes) {
                yes = self.policies.admit(direction, &packet, &mut chain)?;
            }
        }
        Ok(Found { labels, from: None, to: None, door, yes, chain })
    }

    /// The ports that are asked for, in parts that no rule tells apart.
    fn doors(&self, to: &Destination) -> Rc<[Door]> {
        let all = || {
            let protocols = Protocol::ALL.into_iter();
            protocols.flat_map(|protocol| Door::all(protocol, self.policies.ranges(protocol))).collect()
        };
        match to.port {
            Some(port) => Rc::new([Door::single(to.protocol, port)]),
            None => self.all_doors.get_or_init(all).clone(),
        }
    }

    /// The Services that have an address of their own like this one.
    fn services_at(&self, address: IpAddr) -> impl Iterator<Item = &'a ServiceFacts> {
        let index = || {
            let mut index: BTreeMap<IpAddr, Vec<&'a ServiceFacts>> = BTreeMap::new();
            for service in self.given.store.services() {
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
    prefix.length() == if prefix.is_ipv6() { 128 } else { 32 }
}

fn family(v6: bool) -> String {
    if v6 { "IPv6".to_owned() } else { "IPv4".to_owned() }
}

fn step(object: String, field: &str, says: impl Into<String>) -> Step {
    Step { object, field: field.to_owned(), says: says.into() }
}

#[cfg(test)]
// What is written down on the spot is passed as it is.
#[allow(clippy::needless_pass_by_value)]
mod tests;
