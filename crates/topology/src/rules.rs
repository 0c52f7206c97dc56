//! What a policy says, as clauses that each become a rule of the database, with the selectors that they name.
//!
//! ```text
//!  PolicySpec ──▶ Clause { whom, with whom, over which ports } ──▶ `outport == @group && ip4.src == {$set} && tcp`
//!                    └──▶ selectors that must be there first
//! ```
//!
//! A name of a port means other numbers in other pods: it becomes one clause for each number in use, about those pods
//! only that have it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netmodel::Prefix;

use crate::identity::Name;
use crate::objects::{
    Action, AdminPolicyFacts, AdminPolicySpec, ContainerPort, LabelSelector, Peer, PolicyFacts, Ports, Protocol, Rule,
};
use crate::selector::{Role, Scope, Selector, group_name, set_name};

/// Which way connections go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the pods that the policy is about.
    Ingress,
    /// From them.
    Egress,
}

impl Direction {
    /// As the database says it.
    pub fn of_acl(self) -> &'static str {
        match self {
            Self::Ingress => "to-lport",
            Self::Egress => "from-lport",
        }
    }

    /// As the API says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }

    /// The field of a policy.
    pub fn field(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    /// How a match calls the port of the pod that the policy is about.
    pub fn port(self) -> &'static str {
        match self {
            Self::Ingress => "outport",
            Self::Egress => "inport",
        }
    }
}

/// The other end of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Others {
    /// Everybody.
    Anyone,
    /// Only these.
    Those {
        /// The words of selectors.
        sets: Vec<Name>,
        /// Networks, each without some parts.
        blocks: Vec<(Prefix, Box<[Prefix]>)>,
    },
    /// Those whom a selector selects, as far as networks have them.
    Within {
        /// The words of the selector.
        set: Name,
        /// Networks, each without some parts.
        blocks: Vec<(Prefix, Box<[Prefix]>)>,
    },
}

/// A rule as it comes into the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    /// What tells it from the policy's others.
    pub key: String,
    /// Where it stands in the policy.
    pub field: String,
    /// Its place among the rules of its direction.
    pub place: usize,
    /// Which way.
    pub direction: Direction,
    /// The words of the selector whose ports it is about.
    pub target: Name,
    /// With whom.
    pub others: Others,
    /// Over which ports; all if empty.
    pub ports: Vec<(Protocol, Option<(u16, u16)>)>,
    /// What happens.
    pub action: Action,
}

/// What a policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The words of the selector of those whom it is about.
    pub target: Name,
    /// Its clauses.
    pub clauses: Vec<Clause>,
    /// All selectors that it names, by their words.
    pub selectors: BTreeMap<Name, Arc<Selector>>,
    /// The names of ports that it speaks of.
    pub named: BTreeSet<(Name, Protocol)>,
}

/// The numbers that a port of a name and protocol has somewhere.
pub trait Numbers {
    /// The numbers in use.
    fn numbers(&self, name: &Name, protocol: Protocol) -> Vec<u16>;
}

/// What a NetworkPolicy says.
pub fn of_policy(policy: &PolicyFacts, numbers: &impl Numbers) -> Compiled {
    let namespace = &policy.key.namespace;
    let target = Selector::new(Role::Ports, Scope::Namespace(namespace.clone()), policy.spec.target.clone());
    let mut compiler = Compiler::new(target, Some(namespace.clone()), numbers);
    compiler.rules(Direction::Ingress, policy.spec.ingress.as_deref().unwrap_or_default());
    compiler.rules(Direction::Egress, policy.spec.egress.as_deref().unwrap_or_default());
    compiler.compiled
}

/// What an AdminNetworkPolicy, or the baseline one, says; nothing if it was never understood. Of clauses of a direction
/// that match, the one of the lowest place decides.
pub fn of_admin_policy(policy: &AdminPolicyFacts, numbers: &impl Numbers) -> Option<Compiled> {
    let AdminPolicySpec { namespaces, pods, ingress, egress, .. } = &**policy.spec.as_ref()?;
    let target = Selector::new(Role::Ports, Scope::Namespaces(namespaces.clone()), pods.clone());
    let mut compiler = Compiler::new(target, None, numbers);
    compiler.rules(Direction::Ingress, ingress);
    compiler.rules(Direction::Egress, egress);
    Some(compiler.compiled)
}

/// Puts clauses together.
pub(crate) struct Compiler<'a, N> {
    target: Selector,
    /// The policy's own namespace, if it has one.
    namespace: Option<Name>,
    numbers: &'a N,
    pub(crate) compiled: Compiled,
}

impl<'a, N: Numbers> Compiler<'a, N> {
    pub(crate) fn new(target: Selector, namespace: Option<Name>, numbers: &'a N) -> Self {
        let words = target.words();
        let selectors = [(words.clone(), Arc::new(target.clone()))].into();
        let compiled = Compiled { target: words, clauses: Vec::new(), selectors, named: BTreeSet::new() };
        Self { target, namespace, numbers, compiled }
    }

    pub(crate) fn rules(&mut self, direction: Direction, rules: &[Rule]) {
        for (place, rule) in rules.iter().enumerate() {
            let key = format!("{} {place}", direction.field());
            let field = format!("spec.{}[{place}]", direction.field());
            let mut plain = Vec::new();
            let mut named = BTreeSet::new();
            for port in &rule.ports {
                match &port.ports {
                    Ports::All => plain.push((port.protocol, None)),
                    Ports::Range(first, last) => plain.push((port.protocol, Some((*first, *last)))),
                    Ports::Named(name) => drop(named.insert((name.clone(), port.protocol))),
                }
            }
            let clause = |key, target, others, ports| Clause {
                key,
                field: field.clone(),
                place,
                direction,
                target,
                others,
                ports,
                action: rule.action,
            };
            if rule.ports.is_empty() || !plain.is_empty() {
                let others = self.others(rule, None);
                let target = self.compiled.target.clone();
                self.compiled.clauses.extend(others.map(|others| clause(key.clone(), target, others, plain)));
            }
            for (name, protocol) in named {
                for number in self.numbers.numbers(&name, protocol) {
                    let key = format!("{key} {name}/{}={number}", protocol.name());
                    let port = ContainerPort { name: name.clone(), protocol, number };
                    let ports = vec![(protocol, Some((number, number)))];
                    if let Some(others) = self.within(direction, rule, &port) {
                        let (key, target) = (format!("{key} within"), self.compiled.target.clone());
                        self.compiled.clauses.push(clause(key, target, others, ports.clone()));
                    }
                    // The port is that of the end that is reached.
                    let (target, others) = match direction {
                        Direction::Ingress => {
                            let others = self.others(rule, None);
                            (self.target.with_port(port), others)
                        }
                        Direction::Egress => (self.target.clone(), self.others(rule, Some(&port))),
                    };
                    let Some(others) = others else { continue };
                    let target = self.want(target);
                    self.compiled.clauses.push(clause(key, target, others, ports));
                }
                self.compiled.named.insert((name, protocol));
            }
        }
    }

    fn want(&mut self, selector: Selector) -> Name {
        let words = selector.words();
        self.compiled.selectors.entry(words.clone()).or_insert_with(|| Arc::new(selector));
        words
    }

    /// Pods of networks that have a port of a name: a network itself has none.
    fn within(&mut self, direction: Direction, rule: &Rule, port: &ContainerPort) -> Option<Others> {
        let peers = rule.peers.iter().flatten().filter(|_| direction == Direction::Egress);
        let blocks = peers.filter_map(|peer| match peer {
            Peer::Block { cidr, except } => Some((*cidr, except.clone())),
            Peer::Pods { .. } | Peer::Nodes(_) => None,
        });
        let blocks: Vec<(Prefix, Box<[Prefix]>)> = blocks.collect();
        let everywhere = Scope::Namespaces(LabelSelector::default());
        let pods = Selector::new(Role::Addresses, everywhere, LabelSelector::default()).with_port(port.clone());
        (!blocks.is_empty()).then(|| Others::Within { set: self.want(pods), blocks })
    }

    /// The other end, as far as it has a port; none if nobody can have it.
    fn others(&mut self, rule: &Rule, port: Option<&ContainerPort>) -> Option<Others> {
        let anyone = [Peer::Pods { namespaces: Some(LabelSelector::default()), pods: LabelSelector::default() }];
        let peers = match (&rule.peers, port) {
            (None, None) => return Some(Others::Anyone),
            // Of all the world, only pods have ports with names.
            (None, Some(_)) => anyone.as_slice(),
            (Some(peers), _) => peers,
        };
        let (mut sets, mut blocks) = (BTreeSet::new(), Vec::new());
        for peer in peers {
            match peer {
                Peer::Pods { namespaces, pods } => {
                    let scope = match (namespaces, &self.namespace) {
                        (Some(labels), _) => Scope::Namespaces(labels.clone()),
                        (None, Some(own)) => Scope::Namespace(own.clone()),
                        (None, None) => Scope::Namespaces(LabelSelector::default()),
                    };
                    let mut selector = Selector::new(Role::Addresses, scope, pods.clone());
                    selector.port = port.cloned();
                    sets.insert(self.want(selector));
                }
                Peer::Nodes(labels) if port.is_none() => {
                    let scope = Scope::Nodes(labels.clone());
                    sets.insert(self.want(Selector::new(Role::Addresses, scope, LabelSelector::default())));
                }
                Peer::Block { cidr, except } if port.is_none() => blocks.push((*cidr, except.clone())),
                Peer::Nodes(_) | Peer::Block { .. } => {}
            }
        }
        let nobody = sets.is_empty() && blocks.is_empty();
        (!nobody).then(|| Others::Those { sets: sets.into_iter().collect(), blocks })
    }
}

impl Clause {
    /// The match for a family; for all if it does not speak of addresses. None if the family is not meant at all.
    pub fn matching(&self, v6: bool) -> Option<String> {
        let mut parts = vec![format!("{} == @{}", self.direction.port(), group_name(&self.target))];
        match &self.others {
            Others::Anyone => {
                if self.ports.is_empty() {
                    parts.push("ip".to_owned());
                }
            }
            Others::Those { sets, blocks } => parts.push(self.addresses(sets, blocks, v6)?),
            Others::Within { set, blocks } => {
                let blocks = self.addresses(&[], blocks, v6)?;
                parts.extend(self.addresses(std::slice::from_ref(set), &[], v6));
                parts.push(blocks);
            }
        }
        if !self.ports.is_empty() {
            parts.push(ports(&self.ports));
        }
        Some(parts.join(" && "))
    }

    fn addresses(&self, sets: &[Name], blocks: &[(Prefix, Box<[Prefix]>)], v6: bool) -> Option<String> {
        let ip = if v6 { "ip6" } else { "ip4" };
        let end = match self.direction {
            Direction::Ingress => format!("{ip}.src"),
            Direction::Egress => format!("{ip}.dst"),
        };
        let blocks = || blocks.iter().filter(|(cidr, _)| cidr.is_ipv6() == v6);
        let names = sets.iter().map(|words| format!("${}", set_name(words, v6)));
        let whole = blocks().filter(|(_, except)| except.is_empty()).map(|(cidr, _)| cidr.to_string());
        let mut ways: Vec<String> = braced(&end, "==", names.chain(whole)).into_iter().collect();
        for (cidr, except) in blocks().filter(|(_, except)| !except.is_empty()) {
            let without = braced(&end, "!=", except.iter().map(ToString::to_string));
            ways.push(format!("({end} == {cidr} && {})", without.unwrap_or_default()));
        }
        any_of(ways)
    }
}

/// `field == {a, b}`; none if there is nothing to compare with.
fn braced(field: &str, operator: &str, values: impl Iterator<Item = String>) -> Option<String> {
    let values: Vec<String> = values.collect();
    match values.as_slice() {
        [] => None,
        [one] => Some(format!("{field} {operator} {one}")),
        many => Some(format!("{field} {operator} {{{}}}", many.join(", "))),
    }
}

fn any_of(mut ways: Vec<String>) -> Option<String> {
    if ways.len() > 1 { Some(format!("({})", ways.join(" || "))) } else { ways.pop() }
}

fn ports(ports: &[(Protocol, Option<(u16, u16)>)]) -> String {
    let mut by_protocol: BTreeMap<Protocol, BTreeSet<Option<(u16, u16)>>> = BTreeMap::new();
    for (protocol, range) in ports {
        by_protocol.entry(*protocol).or_default().insert(*range);
    }
    let ways = by_protocol.into_iter().map(|(protocol, ranges)| {
        let word = protocol.word();
        if ranges.contains(&None) {
            return word.to_owned();
        }
        let ranges = || ranges.iter().flatten();
        let single = ranges().filter(|(first, last)| first == last).map(|(first, _)| first.to_string());
        let mut ways: Vec<String> = braced(&format!("{word}.dst"), "==", single).into_iter().collect();
        let wide = ranges().filter(|(first, last)| first != last);
        ways.extend(wide.map(|(first, last)| format!("{first} <= {word}.dst <= {last}")));
        // A field of a protocol is only there in its packets; the word itself says so to readers.
        format!("{word} && {}", any_of(ways).unwrap_or_default())
    });
    let ways: Vec<String> = ways.collect();
    match ways.as_slice() {
        [one] => one.clone(),
        many => format!("({})", many.iter().map(|way| format!("({way})")).collect::<Vec<_>>().join(" || ")),
    }
}
