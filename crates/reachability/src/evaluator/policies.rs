//! Whether policies allow a packet, evaluated with the clauses that become ACLs.
//!
//! ```text
//!  egress or ingress of a pod ──▶ tier 1: AdminNetworkPolicy      allow · deny · pass ─┐  no rule matches:
//!                                 tier 2: NetworkPolicy           allow · isolated     ├──▶ the next tier;
//!                                 tier 3: the baseline            allow · deny         ┘    after the last: allowed
//! ```

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use netmodel::{Family, Masquerade, Prefix};
use objects::{Action, AdminPolicyFacts, Name, PodFacts, PodKey, PolicyFacts, Protocol};
use ovn_schema::Feature;
use topology::desired::Inputs;
use topology::identity::Owner;
use topology::rules::{Clause, Compiled, Direction, PeerMatch, compile_admin_policy, compile_policy};
use topology::selector::{Scope, Selector};

use super::blocks::{Candidate, Rules};
use super::ends::{End, Holder, Packet, management_address};
use super::{Step, Undetermined, step};

struct Policy {
    object: String,
    compiled: Compiled,
    /// The directions in which it isolates pods, with the number of its rules.
    isolates: BTreeMap<&'static str, usize>,
    /// Set if the object is invalid: what is in effect instead.
    invalid: Option<Step>,
    /// Whether the database has rules of it that its object does not.
    frozen: bool,
}

/// Policies of all tiers, as the evaluation needs them.
pub(super) struct Policies<'a> {
    inputs: Inputs<'a>,
    /// In evaluation order.
    admin: Vec<Policy>,
    /// NetworkPolicies by namespace.
    network: BTreeMap<Name, Vec<Policy>>,
    baseline: Vec<Policy>,
    /// Cached per pod.
    rules: RefCell<BTreeMap<About, Rc<Rules>>>,
    /// Cached per namespace.
    known: RefCell<BTreeMap<Name, Result<(), Undetermined>>>,
}

/// The key of cached rules.
type About = (Tier, Direction, Arc<PodKey>);

/// The tiers in evaluation order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Admin,
    Network,
    Baseline,
}

impl<'a> Policies<'a> {
    pub(super) fn of(inputs: Inputs<'a>) -> Self {
        let mut network: BTreeMap<Name, Vec<Policy>> = BTreeMap::new();
        for policy in inputs.store.policies() {
            network.entry(policy.key.namespace.clone()).or_default().push(of_network_policy(policy, inputs));
        }
        Self {
            inputs,
            admin: admin_policies(false, inputs),
            network,
            baseline: admin_policies(true, inputs),
            rules: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// The policies of a tier that may apply to a pod.
    fn tier(&self, tier: Tier, pod: &PodFacts) -> &[Policy] {
        match tier {
            Tier::Admin => &self.admin,
            Tier::Network => self.network.get(&pod.key.namespace).map(Vec::as_slice).unwrap_or_default(),
            Tier::Baseline => &self.baseline,
        }
    }

    /// The clauses of a tier for a pod and direction.
    fn rules(&self, tier: Tier, direction: Direction, pod: &PodFacts) -> Rc<Rules> {
        let key = (tier, direction, pod.key.clone());
        if let Some(known) = self.rules.borrow().get(&key) {
            return known.clone();
        }
        let mut rules = Rules::default();
        for (index, policy) in self.tier(tier, pod).iter().enumerate() {
            let mut selects: HashMap<&Name, bool> = HashMap::new();
            let mut targets = |words| *selects.entry(words).or_insert_with(|| self.targets(policy, words, pod));
            // A NetworkPolicy does not apply to a direction in which it does not isolate.
            if tier == Tier::Network
                && !(policy.isolates.contains_key(direction.field()) && targets(&policy.compiled.target))
            {
                continue;
            }
            rules.policies.push(index);
            for (number, clause) in policy.compiled.clauses.iter().enumerate() {
                if clause.direction == direction && targets(&clause.target) {
                    rules.add(index, number, &clause.peers);
                }
            }
        }
        let rules = Rc::new(rules);
        self.rules.borrow_mut().insert(key, rules.clone());
        rules
    }

    /// Whether policies of a direction allow a packet; adds the deciding step to `chain`.
    pub(super) fn admit(
        &self,
        direction: Direction,
        packet: &Packet<'_>,
        chain: &mut Vec<Step>,
    ) -> Result<bool, Undetermined> {
        let (own, other) = match direction {
            Direction::Ingress => (&packet.to, &packet.from),
            Direction::Egress => (&packet.from, &packet.to),
        };
        let Holder::Pod(pod) = own.holder else { return Ok(true) };
        self.check_known(pod)?;
        if let Some(yes) = self.by_first_rule(Tier::Admin, direction, pod, packet, chain) {
            return Ok(yes);
        }
        if let Some(yes) = self.by_network_policies(direction, pod, other, packet, chain) {
            return Ok(yes);
        }
        Ok(self.by_first_rule(Tier::Baseline, direction, pod, packet, chain).unwrap_or(true))
    }

    /// Tiers 1 and 3: the first rule of the first policy decides. None if no rule matches, or if it passes.
    fn by_first_rule(
        &self,
        tier: Tier,
        direction: Direction,
        pod: &PodFacts,
        packet: &Packet<'_>,
        chain: &mut Vec<Step>,
    ) -> Option<bool> {
        let other = match direction {
            Direction::Ingress => &packet.from,
            Direction::Egress => &packet.to,
        };
        let (policy, clause, peer) = self.first_match(tier, direction, pod, other, packet)?;
        chain.extend(policy.invalid.clone());
        chain.push(step(policy.object.clone(), &clause.field, says(clause, &peer)));
        match clause.action {
            Action::Allow => Some(true),
            Action::Deny => Some(false),
            Action::Pass => None,
        }
    }

    /// The database may have rules that no object has: then nothing can be evaluated.
    fn check_known(&self, pod: &PodFacts) -> Result<(), Undetermined> {
        let namespace = &pod.key.namespace;
        if let Some(known) = self.known.borrow().get(namespace) {
            return known.clone();
        }
        let known = self.find_known(namespace);
        self.known.borrow_mut().insert(namespace.clone(), known.clone());
        known
    }

    fn find_known(&self, namespace: &Name) -> Result<(), Undetermined> {
        let store = self.inputs.store;
        let here = |owner: &&Owner| matches!(owner, Owner::Policy(key) if key.namespace == *namespace);
        if let Some(owner) = store.lingering().find(here) {
            let why = "is deleted, and its rules stay until its pods are gone";
            return Err(Undetermined(format!("NetworkPolicy {} {why}: they are not known here", owner.name())));
        }
        let of_namespace = self.network.get(namespace).into_iter().flatten();
        of_namespace.chain(&self.admin).chain(&self.baseline).try_for_each(check_frozen)
    }

    /// Tier 2; None if no policy applies to the pod and direction.
    fn by_network_policies(
        &self,
        direction: Direction,
        pod: &PodFacts,
        other: &End<'_>,
        packet: &Packet<'_>,
        chain: &mut Vec<Step>,
    ) -> Option<bool> {
        let of_namespace = self.tier(Tier::Network, pod);
        let rules = self.rules(Tier::Network, direction, pod);
        if rules.policies.is_empty() {
            return None;
        }
        if let Some(step) = self.never_denied(direction, pod, other.address) {
            chain.push(step);
            return Some(true);
        }
        if let Some((policy, clause, peer)) = self.first_match(Tier::Network, direction, pod, other, packet) {
            chain.extend(policy.invalid.clone());
            chain.push(step(policy.object.clone(), &clause.field, says(clause, &peer)));
            return Some(true);
        }
        for policy in rules.policies.iter().map(|index| &of_namespace[*index]) {
            chain.extend(policy.invalid.clone());
            let none = match policy.isolates.get(direction.field()).copied().unwrap_or_default() {
                0 => "and has no rule".to_owned(),
                1 => "and its rule does not allow this".to_owned(),
                many => format!("and none of its {many} rules allows this"),
            };
            let peer = policy.compiled.selectors.get(&policy.compiled.target).map(|selector| describe(selector));
            let what = match direction {
                Direction::Ingress => "ingress",
                Direction::Egress => "egress",
            };
            let says = format!("isolates {} for {what}, {none}", peer.unwrap_or_default());
            chain.push(step(policy.object.clone(), &format!("spec.{}", direction.field()), says));
        }
        Some(false)
    }

    /// What the node's and the cluster's own ACLs allow despite NetworkPolicies.
    fn never_denied(&self, direction: Direction, pod: &PodFacts, other: IpAddr) -> Option<Step> {
        let family = Family::of(other);
        let node = pod.node.as_ref()?;
        if direction == Direction::Ingress && management_address(node, family, self.inputs) == Some(other) {
            let says = format!("{other} is the pod's own host, which NetworkPolicies do not block");
            return Some(step(format!("Node {node}"), "k8s.ovn.org/node-subnets", says));
        }
        let hairpin = self.inputs.settings.masquerade_address(Masquerade::Hairpin, family) == Some(other);
        hairpin.then(|| step(format!("Pod {}", pod.key), "status.podIPs", "it reaches itself through the Service"))
    }

    /// The first clause of a tier that matches a packet, with its policy and a description of the peer.
    fn first_match(
        &self,
        tier: Tier,
        direction: Direction,
        pod: &PodFacts,
        other: &End<'_>,
        packet: &Packet<'_>,
    ) -> Option<(&Policy, &Clause, String)> {
        let policies = self.tier(tier, pod);
        let over = |(protocol, range): &(Protocol, Option<(u16, u16)>)| {
            *protocol == packet.protocol && range.is_none_or(|(first, last)| (first..=last).contains(&packet.port))
        };
        let rules = self.rules(tier, direction, pod);
        rules.candidates(other.address).find_map(|Candidate { policy, clause, block }| {
            let policy = &policies[policy];
            let clause = &policy.compiled.clauses[clause];
            if !clause.ports.is_empty() && !clause.ports.iter().any(over) {
                return None;
            }
            Some((policy, clause, self.among(policy, &clause.peers, other, block)?))
        })
    }

    fn targets(&self, policy: &Policy, words: &Name, pod: &PodFacts) -> bool {
        let selector = policy.compiled.selectors.get(words);
        selector.is_some_and(|selector| selector.selects(pod, &self.inputs.store.labels_of(&pod.key.namespace)))
    }

    /// Describes the peer of a clause that an end matches, if it does; `block` is the block with its address.
    fn among(&self, policy: &Policy, others: &PeerMatch, end: &End<'_>, block: Option<usize>) -> Option<String> {
        let selected = |words: &Name| {
            let selector = policy.compiled.selectors.get(words).filter(|selector| self.is_in(selector, end))?;
            Some(describe(selector))
        };
        match others {
            PeerMatch::Any => Some("all addresses".to_owned()),
            PeerMatch::AnyOf { sets, blocks } => {
                sets.iter().find_map(selected).or_else(|| Some(describe_block(blocks.get(block?)?)))
            }
            PeerMatch::SetInBlocks { set, blocks } => {
                let block = blocks.get(block?)?;
                Some(format!("{} in {}", selected(set)?, describe_block(block)))
            }
        }
    }

    /// Whether the address is in the set of a selector.
    fn is_in(&self, selector: &Selector, end: &End<'_>) -> bool {
        if let Scope::Nodes(labels) = &selector.scope {
            let mut nodes = self.inputs.store.nodes().filter(|node| labels.matches(&node.labels));
            return nodes.any(|node| node.host_addresses.valid().is_some_and(|all| all.contains(&end.address)));
        }
        match end.holder {
            Holder::Pod(pod) => selector.selects(pod, &self.inputs.store.labels_of(&pod.key.namespace)),
            Holder::Node(_) | Holder::Outside => false,
        }
    }

    fn clauses(&self) -> impl Iterator<Item = &Clause> {
        let all = self.network.values().flatten().chain(&self.admin).chain(&self.baseline);
        all.flat_map(|policy| &policy.compiled.clauses)
    }

    /// The blocks of all clauses, with their exceptions.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Prefix> {
        let blocks = self.clauses().filter_map(|clause| match &clause.peers {
            PeerMatch::Any => None,
            PeerMatch::AnyOf { blocks, .. } | PeerMatch::SetInBlocks { blocks, .. } => Some(blocks),
        });
        blocks.flatten().flat_map(|(cidr, except)| std::iter::once(*cidr).chain(except.iter().copied()))
    }

    /// The port ranges of all clauses.
    pub(super) fn ranges(&self, protocol: Protocol) -> impl Iterator<Item = (u16, u16)> {
        let ports = self.clauses().flat_map(|clause| &clause.ports);
        ports.filter(move |(of, _)| *of == protocol).filter_map(|(_, range)| *range)
    }
}

fn check_frozen(policy: &Policy) -> Result<(), Undetermined> {
    if !policy.frozen {
        return Ok(());
    }
    let why = "is invalid, and its existing rules stay in effect";
    Err(Undetermined(format!("{} {why}: correct it, then ask again", policy.object)))
}

fn of_network_policy(policy: &PolicyFacts, inputs: Inputs<'_>) -> Policy {
    let object = format!("NetworkPolicy {}", policy.key);
    let directions = [(Direction::Ingress, &policy.spec.ingress), (Direction::Egress, &policy.spec.egress)];
    let instead = if policy.last_valid {
        "its last valid version stays in effect"
    } else {
        "the selected pods are isolated in its directions"
    };
    let compiled = compile_policy(policy, inputs.store);
    let rules = |direction: Direction| {
        let clauses = compiled.clauses.iter().filter(|clause| clause.direction == direction);
        clauses.map(|clause| clause.index).collect::<BTreeSet<usize>>().len()
    };
    let isolates = directions.into_iter().filter(|(_, rules)| rules.is_some());
    let isolates = isolates.map(|(direction, _)| (direction.field(), rules(direction))).collect();
    Policy {
        compiled,
        isolates,
        invalid: invalid(&object, policy.broken.as_deref(), instead),
        frozen: inputs.store.is_frozen(&Owner::Policy(policy.key.clone())),
        object,
    }
}

/// The AdminNetworkPolicies in evaluation order, or the baseline. Those that were never valid, or for which the database has
/// no tiers or too few priorities, have no effect.
fn admin_policies(baseline: bool, inputs: Inputs<'_>) -> Vec<Policy> {
    if !inputs.settings.features.has(Feature::AclTiers) {
        return Vec::new();
    }
    let kind = if baseline { "BaselineAdminNetworkPolicy" } else { "AdminNetworkPolicy" };
    let has_room = |name: &str| baseline || inputs.store.has_priorities(name);
    let mut policies: Vec<&AdminPolicyFacts> = inputs.store.admin_policies(baseline).collect();
    policies.sort_by_key(|policy| policy.rank());
    let policies = policies.into_iter().filter_map(|policy| {
        let name: Name = (*policy.key.name).into();
        let owner = if baseline { Owner::BaselinePolicy(name) } else { Owner::AdminPolicy(name) };
        let frozen = inputs.store.is_fixed(&owner);
        let object = format!("{kind} {}", policy.key.name);
        let compiled = compile_admin_policy(policy, inputs.store).filter(|_| has_room(&policy.key.name));
        if compiled.is_none() && !frozen {
            return None;
        }
        let nothing =
            Compiled { target: "".into(), clauses: Vec::new(), selectors: BTreeMap::new(), named: BTreeSet::new() };
        let invalid = invalid(&object, policy.broken.as_deref(), "its last valid version stays in effect");
        Some(Policy { object, compiled: compiled.unwrap_or(nothing), isolates: BTreeMap::new(), invalid, frozen })
    });
    policies.collect()
}

fn invalid(object: &str, broken: Option<&str>, instead: &str) -> Option<Step> {
    let why = broken?;
    let field = why.split_once(": ").map_or("spec", |(field, _)| field);
    Some(step(object.to_owned(), field, format!("it is invalid ({why}): {instead}")))
}

fn describe_block((cidr, except): &(Prefix, Box<[Prefix]>)) -> String {
    let without: Vec<String> = except.iter().map(ToString::to_string).collect();
    if without.is_empty() { cidr.to_string() } else { format!("{cidr} except {}", without.join(", ")) }
}

fn says(clause: &Clause, peer: &str) -> String {
    let direction = match clause.direction {
        Direction::Ingress => "ingress from",
        Direction::Egress => "egress to",
    };
    let ports = if clause.ports.is_empty() { "all ports".to_owned() } else { describe_ports(&clause.ports) };
    let packets = format!("{direction} {peer} on {ports}");
    match clause.action {
        Action::Allow => format!("allows {packets}"),
        Action::Deny => format!("denies {packets}"),
        Action::Pass => format!("leaves {packets} to NetworkPolicies"),
    }
}

fn describe_ports(ports: &[(Protocol, Option<(u16, u16)>)]) -> String {
    let describe = |(protocol, range): &(Protocol, Option<(u16, u16)>)| match range {
        None => format!("all of {}", protocol.ovn_name()),
        Some((first, last)) if first == last => format!("{first}/{}", protocol.ovn_name()),
        Some((first, last)) => format!("{first}-{last}/{}", protocol.ovn_name()),
    };
    ports.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// A selector as text.
fn describe(selector: &Selector) -> String {
    let all = |text: String| (text != "*").then_some(text);
    let pods = match all(selector.pods.to_string()) {
        Some(labels) => format!("pods {labels}"),
        None => "all pods".to_owned(),
    };
    let port =
        selector.port.as_ref().map(|port| format!(" with port {}={}", port.name, port.number)).unwrap_or_default();
    match &selector.scope {
        Scope::Namespace(name) => format!("{pods}{port} of namespace {name}"),
        Scope::Namespaces(labels) => match all(labels.to_string()) {
            Some(labels) => format!("{pods}{port} of namespaces {labels}"),
            None => format!("{pods}{port} of all namespaces"),
        },
        Scope::Nodes(labels) => match all(labels.to_string()) {
            Some(labels) => format!("nodes {labels}"),
            None => "all nodes".to_owned(),
        },
    }
}
