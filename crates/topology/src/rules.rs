//! Compiles policies into clauses, each of which becomes ACLs, and the selectors that they refer to.
//!
//! ```text
//!  PolicySpec ──▶ Clause { subject, peers, ports } ──▶ `outport == @group && ip4.src == {$set} && tcp`
//!                    └──▶ selectors: their groups and sets must exist first
//! ```
//!
//! A named port may have different numbers in different pods: it becomes one clause for each number in use, which applies
//! only to pods with that number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netmodel::{Family, Prefix};
use objects::{
    Action, AdminPolicyFacts, AdminPolicySpec, ContainerPort, LabelSelector, Name, Peer, PolicyFacts, Ports, Protocol,
    Rule,
};

use crate::selector::{Role, Scope, Selector, group_name, set_name};

/// The direction of connections, as seen from the pods that the policy selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the selected pods.
    Ingress,
    /// From the selected pods.
    Egress,
}

impl Direction {
    /// Value of an ACL's `direction`: ingress is what the port receives.
    pub fn acl_direction(self) -> &'static str {
        match self {
            Self::Ingress => "to-lport",
            Self::Egress => "from-lport",
        }
    }

    /// As in `policyTypes` of a NetworkPolicy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }

    /// The field of a policy's spec.
    pub fn field(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    /// The field of a match that is the port of the selected pod.
    pub fn port_field(self) -> &'static str {
        match self {
            Self::Ingress => "outport",
            Self::Egress => "inport",
        }
    }
}

/// The other ends of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerMatch {
    /// Any address.
    Any,
    /// Members of a set, or addresses of a block.
    AnyOf {
        /// Canonical texts of selectors.
        sets: Vec<Name>,
        /// Networks with their exceptions.
        blocks: Vec<(Prefix, Box<[Prefix]>)>,
    },
    /// Members of a set that are also in a block.
    SetInBlocks {
        /// Canonical text of the selector.
        set: Name,
        /// Networks with their exceptions.
        blocks: Vec<(Prefix, Box<[Prefix]>)>,
    },
}

/// A rule in the form of an ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    /// Unique in the policy; part of the identity of its ACLs.
    pub key: String,
    /// The field of the rule, as in `spec.ingress[0]`.
    pub field: String,
    /// Index of the rule in its direction.
    pub index: usize,
    /// From the field of the rule.
    pub direction: Direction,
    /// Canonical text of the selector of the pods that it applies to.
    pub target: Name,
    /// The other ends.
    pub peers: PeerMatch,
    /// Ports of the destination; empty means all.
    pub ports: Vec<(Protocol, Option<(u16, u16)>)>,
    /// What happens to matching connections.
    pub action: Action,
}

/// A policy as selectors and clauses: what follows from it without knowing which pods are selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Canonical text of the selector of its subject.
    pub target: Name,
    /// In order of direction and rule.
    pub clauses: Vec<Clause>,
    /// All selectors of clauses, by canonical text.
    pub selectors: BTreeMap<Name, Arc<Selector>>,
    /// Named ports: a change of their numbers recompiles the policy.
    pub named: BTreeSet<(Name, Protocol)>,
}

/// Looks up the numbers of named ports.
pub trait PortNumbers {
    /// All numbers that pods use for this name, sorted.
    fn numbers(&self, name: &Name, protocol: Protocol) -> Vec<u16>;
}

/// Compiles a NetworkPolicy; named ports become the numbers that pods have now.
pub fn compile_policy(policy: &PolicyFacts, numbers: &impl PortNumbers) -> Compiled {
    let namespace = &policy.key.namespace;
    let target = Selector::new(Role::Ports, Scope::Namespace(namespace.clone()), policy.spec.target.clone());
    let mut compiler = Compiler::new(target, Some(namespace.clone()), numbers);
    compiler.rules(Direction::Ingress, policy.spec.ingress.as_deref().unwrap_or_default());
    compiler.rules(Direction::Egress, policy.spec.egress.as_deref().unwrap_or_default());
    compiler.compiled
}

/// Compiles an AdminNetworkPolicy or BaselineAdminNetworkPolicy; None if it was never valid. Of the clauses of a direction
/// that match, the one with the lowest index decides.
pub fn compile_admin_policy(policy: &AdminPolicyFacts, numbers: &impl PortNumbers) -> Option<Compiled> {
    let AdminPolicySpec { namespaces, pods, ingress, egress, .. } = &**policy.spec.as_ref()?;
    let target = Selector::new(Role::Ports, Scope::Namespaces(namespaces.clone()), pods.clone());
    let mut compiler = Compiler::new(target, None, numbers);
    compiler.rules(Direction::Ingress, ingress);
    compiler.rules(Direction::Egress, egress);
    Some(compiler.compiled)
}

/// Collects the clauses of a policy.
pub(crate) struct Compiler<'a, N> {
    target: Selector,
    /// None for cluster-scoped policies.
    namespace: Option<Name>,
    numbers: &'a N,
    pub(crate) compiled: Compiled,
}

impl<'a, N: PortNumbers> Compiler<'a, N> {
    pub(crate) fn new(target: Selector, namespace: Option<Name>, numbers: &'a N) -> Self {
        let words = target.canonical();
        let selectors = [(words.clone(), Arc::new(target.clone()))].into();
        let compiled = Compiled { target: words, clauses: Vec::new(), selectors, named: BTreeSet::new() };
        Self { target, namespace, numbers, compiled }
    }

    pub(crate) fn rules(&mut self, direction: Direction, rules: &[Rule]) {
        for (index, rule) in rules.iter().enumerate() {
            let key = format!("{} {index}", direction.field());
            let field = format!("spec.{}[{index}]", direction.field());
            let mut plain = Vec::new();
            let mut named = BTreeSet::new();
            for port in &rule.ports {
                match &port.ports {
                    Ports::All => plain.push((port.protocol, None)),
                    Ports::Range(first, last) => plain.push((port.protocol, Some((*first, *last)))),
                    Ports::Named(name) => drop(named.insert((name.clone(), port.protocol))),
                }
            }
            let clause = |key, target, peers, ports| Clause {
                key,
                field: field.clone(),
                index,
                direction,
                target,
                peers,
                ports,
                action: rule.action,
            };
            if rule.ports.is_empty() || !plain.is_empty() {
                let peers = self.peers(rule, None);
                let target = self.compiled.target.clone();
                self.compiled.clauses.extend(peers.map(|peers| clause(key.clone(), target, peers, plain)));
            }
            for (name, protocol) in named {
                for number in self.numbers.numbers(&name, protocol) {
                    let key = format!("{key} {name}/{}={number}", protocol.name());
                    let port = ContainerPort { name: name.clone(), protocol, number };
                    let ports = vec![(protocol, Some((number, number)))];
                    if let Some(peers) = self.set_in_blocks(direction, rule, &port) {
                        let (key, target) = (format!("{key} within"), self.compiled.target.clone());
                        self.compiled.clauses.push(clause(key, target, peers, ports.clone()));
                    }
                    // The named port is of the destination.
                    let (target, peers) = match direction {
                        Direction::Ingress => {
                            let peers = self.peers(rule, None);
                            (self.target.with_port(port), peers)
                        }
                        Direction::Egress => (self.target.clone(), self.peers(rule, Some(&port))),
                    };
                    let Some(peers) = peers else { continue };
                    let target = self.add_selector(target);
                    self.compiled.clauses.push(clause(key, target, peers, ports));
                }
                self.compiled.named.insert((name, protocol));
            }
        }
    }

    fn add_selector(&mut self, selector: Selector) -> Name {
        let words = selector.canonical();
        self.compiled.selectors.entry(words.clone()).or_insert_with(|| Arc::new(selector));
        words
    }

    /// Pods with a named port in the blocks of a rule: addresses outside the cluster have no named ports.
    fn set_in_blocks(&mut self, direction: Direction, rule: &Rule, port: &ContainerPort) -> Option<PeerMatch> {
        let peers = rule.peers.iter().flatten().filter(|_| direction == Direction::Egress);
        let blocks = peers.filter_map(|peer| match peer {
            Peer::Block { cidr, except } => Some((*cidr, except.clone())),
            Peer::Pods { .. } | Peer::Nodes(_) => None,
        });
        let blocks: Vec<(Prefix, Box<[Prefix]>)> = blocks.collect();
        let everywhere = Scope::Namespaces(LabelSelector::default());
        let pods = Selector::new(Role::Addresses, everywhere, LabelSelector::default()).with_port(port.clone());
        (!blocks.is_empty()).then(|| PeerMatch::SetInBlocks { set: self.add_selector(pods), blocks })
    }

    /// The peers of a rule, restricted to those with a named port; None if there can be none.
    fn peers(&mut self, rule: &Rule, port: Option<&ContainerPort>) -> Option<PeerMatch> {
        let all_pods = [Peer::Pods { namespaces: Some(LabelSelector::default()), pods: LabelSelector::default() }];
        let peers = match (&rule.peers, port) {
            (None, None) => return Some(PeerMatch::Any),
            // Only pods have named ports.
            (None, Some(_)) => all_pods.as_slice(),
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
                    sets.insert(self.add_selector(selector));
                }
                Peer::Nodes(labels) if port.is_none() => {
                    let scope = Scope::Nodes(labels.clone());
                    sets.insert(self.add_selector(Selector::new(Role::Addresses, scope, LabelSelector::default())));
                }
                Peer::Block { cidr, except } if port.is_none() => blocks.push((*cidr, except.clone())),
                Peer::Nodes(_) | Peer::Block { .. } => {}
            }
        }
        let none = sets.is_empty() && blocks.is_empty();
        (!none).then(|| PeerMatch::AnyOf { sets: sets.into_iter().collect(), blocks })
    }
}

impl Clause {
    /// The match expression for a family, or for both without addresses; None if no peer is of the family.
    pub fn matching(&self, family: Family) -> Option<String> {
        let mut parts = vec![format!("{} == @{}", self.direction.port_field(), group_name(&self.target))];
        match &self.peers {
            PeerMatch::Any => {
                if self.ports.is_empty() {
                    parts.push("ip".to_owned());
                }
            }
            PeerMatch::AnyOf { sets, blocks } => parts.push(self.addresses(sets, blocks, family)?),
            PeerMatch::SetInBlocks { set, blocks } => {
                let blocks = self.addresses(&[], blocks, family)?;
                parts.extend(self.addresses(std::slice::from_ref(set), &[], family));
                parts.push(blocks);
            }
        }
        if !self.ports.is_empty() {
            parts.push(ports(&self.ports));
        }
        Some(parts.join(" && "))
    }

    fn addresses(&self, sets: &[Name], blocks: &[(Prefix, Box<[Prefix]>)], family: Family) -> Option<String> {
        let ip = format!("ip{}", family.version());
        let end = match self.direction {
            Direction::Ingress => format!("{ip}.src"),
            Direction::Egress => format!("{ip}.dst"),
        };
        let blocks = || blocks.iter().filter(|(cidr, _)| cidr.family() == family);
        let names = sets.iter().map(|words| format!("${}", set_name(words, family)));
        let whole = blocks().filter(|(_, except)| except.is_empty()).map(|(cidr, _)| cidr.to_string());
        let mut alternatives: Vec<String> = braced(&end, "==", names.chain(whole)).into_iter().collect();
        for (cidr, except) in blocks().filter(|(_, except)| !except.is_empty()) {
            let without = braced(&end, "!=", except.iter().map(ToString::to_string));
            alternatives.push(format!("({end} == {cidr} && {})", without.unwrap_or_default()));
        }
        any_of(alternatives)
    }
}

/// `field == {a, b}`; None without values.
fn braced(field: &str, operator: &str, values: impl Iterator<Item = String>) -> Option<String> {
    let values: Vec<String> = values.collect();
    match values.as_slice() {
        [] => None,
        [one] => Some(format!("{field} {operator} {one}")),
        many => Some(format!("{field} {operator} {{{}}}", many.join(", "))),
    }
}

fn any_of(mut alternatives: Vec<String>) -> Option<String> {
    if alternatives.len() > 1 { Some(format!("({})", alternatives.join(" || "))) } else { alternatives.pop() }
}

fn ports(ports: &[(Protocol, Option<(u16, u16)>)]) -> String {
    let mut by_protocol: BTreeMap<Protocol, BTreeSet<Option<(u16, u16)>>> = BTreeMap::new();
    for (protocol, range) in ports {
        by_protocol.entry(*protocol).or_default().insert(*range);
    }
    let alternatives = by_protocol.into_iter().map(|(protocol, ranges)| {
        let word = protocol.ovn_name();
        if ranges.contains(&None) {
            return word.to_owned();
        }
        let ranges = || ranges.iter().flatten();
        let single = ranges().filter(|(first, last)| first == last).map(|(first, _)| first.to_string());
        let mut alternatives: Vec<String> = braced(&format!("{word}.dst"), "==", single).into_iter().collect();
        let wide = ranges().filter(|(first, last)| first != last);
        alternatives.extend(wide.map(|(first, last)| format!("{first} <= {word}.dst <= {last}")));
        // The comparison implies the protocol; it is repeated for readers.
        format!("{word} && {}", any_of(alternatives).unwrap_or_default())
    });
    let alternatives: Vec<String> = alternatives.collect();
    match alternatives.as_slice() {
        [one] => one.clone(),
        many => {
            format!("({})", many.iter().map(|alternative| format!("({alternative})")).collect::<Vec<_>>().join(" || "))
        }
    }
}
