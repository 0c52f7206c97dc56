//! policies: whether rules let a packet through, asked of the very clauses that become rows of the database.
//!
//! ```text
//!  what a pod sends, what comes to it ──▶ tier 1: AdminNetworkPolicy      allow · deny · pass ─┐  no rule about it
//!                                         tier 2: NetworkPolicy           allow · closed       ├──▶ the next tier
//!                                         tier 3: the baseline            allow · deny         ┘    at the end: allowed
//! ```

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use netmodel::{Masquerade, Prefix};
use objects::{Action, AdminPolicyFacts, Name, PodFacts, PodKey, PolicyFacts, Protocol};
use ovn_schema::Feature;
use topology::desired::Inputs;
use topology::identity::Owner;
use topology::rules::{Clause, Compiled, Direction, Others, of_admin_policy, of_policy};
use topology::selector::{Scope, Selector};

use super::blocks::{Candidate, Rules};
use super::ends::{End, Packet, Who, management_address};
use super::{CannotTell, Step, step};

/// A policy, as far as it decides.
struct Policy {
    object: String,
    compiled: Compiled,
    /// Which directions it closes but for what its clauses allow, and how many rules these are of.
    closes: BTreeMap<&'static str, usize>,
    /// Why it is not as its object says.
    trouble: Option<Step>,
    /// Whether the database has rules of it that its object does not say.
    frozen: bool,
}

/// All policies there are, by their tiers.
pub(super) struct Policies<'a> {
    given: Inputs<'a>,
    /// In the order in which they are asked.
    admin: Vec<Policy>,
    /// By namespace.
    network: BTreeMap<Name, Vec<Policy>>,
    baseline: Vec<Policy>,
    /// What is about a pod, found once.
    rules: RefCell<BTreeMap<About, Rc<Rules>>>,
    /// Whether the rules of a namespace are known, found once.
    known: RefCell<BTreeMap<Name, Result<(), CannotTell>>>,
}

/// What rules are found for.
type About = (Tier, Direction, Arc<PodKey>);

/// The tiers, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Admin,
    Network,
    Baseline,
}

impl<'a> Policies<'a> {
    pub(super) fn of(given: Inputs<'a>) -> Self {
        let mut network: BTreeMap<Name, Vec<Policy>> = BTreeMap::new();
        for policy in given.store.policies() {
            network.entry(policy.key.namespace.clone()).or_default().push(of_network_policy(policy, given));
        }
        Self {
            given,
            admin: admin_policies(false, given),
            network,
            baseline: admin_policies(true, given),
            rules: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// The policies of a tier that may be about a pod.
    fn tier(&self, tier: Tier, pod: &PodFacts) -> &[Policy] {
        match tier {
            Tier::Admin => &self.admin,
            Tier::Network => self.network.get(&pod.key.namespace).map(Vec::as_slice).unwrap_or_default(),
            Tier::Baseline => &self.baseline,
        }
    }

    /// What a tier says about a pod and direction.
    fn rules(&self, tier: Tier, direction: Direction, pod: &PodFacts) -> Rc<Rules> {
        let key = (tier, direction, pod.key.clone());
        if let Some(known) = self.rules.borrow().get(&key) {
            return known.clone();
        }
        let mut rules = Rules::default();
        for (place, policy) in self.tier(tier, pod).iter().enumerate() {
            let mut selects: HashMap<&Name, bool> = HashMap::new();
            let mut targets = |words| *selects.entry(words).or_insert_with(|| self.targets(policy, words, pod));
            // A NetworkPolicy says nothing of a direction that it does not close.
            if tier == Tier::Network
                && !(policy.closes.contains_key(direction.field()) && targets(&policy.compiled.target))
            {
                continue;
            }
            rules.about.push(place);
            for (number, clause) in policy.compiled.clauses.iter().enumerate() {
                if clause.direction == direction && targets(&clause.target) {
                    rules.add(place, number, &clause.others);
                }
            }
        }
        let rules = Rc::new(rules);
        self.rules.borrow_mut().insert(key, rules.clone());
        rules
    }

    /// Whether a pod's rules of a direction let a packet through; what decides it is told.
    pub(super) fn admit(
        &self,
        direction: Direction,
        packet: &Packet<'_>,
        chain: &mut Vec<Step>,
    ) -> Result<bool, CannotTell> {
        let (own, other) = match direction {
            Direction::Ingress => (&packet.to, &packet.from),
            Direction::Egress => (&packet.from, &packet.to),
        };
        let Who::Pod(pod) = own.who else { return Ok(true) };
        self.check_known(pod)?;
        if let Some(yes) = self.by_first_rule(Tier::Admin, direction, pod, packet, chain) {
            return Ok(yes);
        }
        if let Some(yes) = self.by_network_policies(direction, pod, other, packet, chain) {
            return Ok(yes);
        }
        Ok(self.by_first_rule(Tier::Baseline, direction, pod, packet, chain).unwrap_or(true))
    }

    /// Tiers 1 and 3: the first rule of the first policy decides. None if there is none, or if it leaves it to others.
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
        let (policy, clause, whom) = self.first_match(tier, direction, pod, other, packet)?;
        chain.extend(policy.trouble.clone());
        chain.push(step(policy.object.clone(), &clause.field, says(clause, &whom)));
        match clause.action {
            Action::Allow => Some(true),
            Action::Deny => Some(false),
            Action::Pass => None,
        }
    }

    /// What the database has may be more than what the objects say: then nothing is claimed.
    fn check_known(&self, pod: &PodFacts) -> Result<(), CannotTell> {
        let namespace = &pod.key.namespace;
        if let Some(known) = self.known.borrow().get(namespace) {
            return known.clone();
        }
        let known = self.find_known(namespace);
        self.known.borrow_mut().insert(namespace.clone(), known.clone());
        known
    }

    fn find_known(&self, namespace: &Name) -> Result<(), CannotTell> {
        let store = self.given.store;
        let here = |owner: &&Owner| matches!(owner, Owner::Policy(key) if key.namespace == *namespace);
        if let Some(owner) = store.lingering().find(here) {
            let why = "is deleted, and its rules stay until the pods that they are about are gone";
            return Err(CannotTell(format!("NetworkPolicy {} {why}: what they say is not known here", owner.name())));
        }
        let of_namespace = self.network.get(namespace).into_iter().flatten();
        of_namespace.chain(&self.admin).chain(&self.baseline).try_for_each(check_frozen)
    }

    /// Tier 2; none if no policy is about the pod and direction.
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
        if rules.about.is_empty() {
            return None;
        }
        if let Some(step) = self.never_denied(direction, pod, other.address) {
            chain.push(step);
            return Some(true);
        }
        if let Some((policy, clause, whom)) = self.first_match(Tier::Network, direction, pod, other, packet) {
            chain.extend(policy.trouble.clone());
            chain.push(step(policy.object.clone(), &clause.field, says(clause, &whom)));
            return Some(true);
        }
        for policy in rules.about.iter().map(|place| &of_namespace[*place]) {
            chain.extend(policy.trouble.clone());
            let none = match policy.closes.get(direction.field()).copied().unwrap_or_default() {
                0 => "and none of its rules allows anything".to_owned(),
                1 => "and its rule does not allow this".to_owned(),
                many => format!("and none of its {many} rules allows this"),
            };
            let whom = policy.compiled.selectors.get(&policy.compiled.target).map(|selector| describe(selector));
            let what = match direction {
                Direction::Ingress => "closes what comes to",
                Direction::Egress => "closes what is sent by",
            };
            let says = format!("{what} {}, {none}", whom.unwrap_or_default());
            chain.push(step(policy.object.clone(), &format!("spec.{}", direction.field()), says));
        }
        Some(false)
    }

    /// What the node's and the cluster's own rules allow beside all NetworkPolicies.
    fn never_denied(&self, direction: Direction, pod: &PodFacts, other: IpAddr) -> Option<Step> {
        let v6 = other.is_ipv6();
        let node = pod.node.as_ref()?;
        if direction == Direction::Ingress && management_address(node, v6, self.given) == Some(other) {
            let says = format!("{other} is the pod's own host, which no NetworkPolicy shuts out");
            return Some(step(format!("Node {node}"), "k8s.ovn.org/node-subnets", says));
        }
        let hairpin = self.given.settings.masquerade_address(Masquerade::Hairpin, v6) == Some(other);
        hairpin.then(|| step(format!("Pod {}", pod.key), "status.podIPs", "it reaches itself through the Service"))
    }

    /// The first clause of a tier that is about a packet, with its policy and whom it means.
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
            Some((policy, clause, self.among(policy, &clause.others, other, block)?))
        })
    }

    fn targets(&self, policy: &Policy, words: &Name, pod: &PodFacts) -> bool {
        let selector = policy.compiled.selectors.get(words);
        selector.is_some_and(|selector| selector.selects(pod, &self.given.store.labels_of(&pod.key.namespace)))
    }

    /// Whether one is among the others that a clause speaks of, and as whom; the block is the one that has its address.
    fn among(&self, policy: &Policy, others: &Others, end: &End<'_>, block: Option<usize>) -> Option<String> {
        let selected = |words: &Name| {
            let selector = policy.compiled.selectors.get(words).filter(|selector| self.is_in(selector, end))?;
            Some(describe(selector))
        };
        match others {
            Others::Anyone => Some("everybody".to_owned()),
            Others::Those { sets, blocks } => {
                sets.iter().find_map(selected).or_else(|| Some(describe_block(blocks.get(block?)?)))
            }
            Others::Within { set, blocks } => {
                let block = blocks.get(block?)?;
                Some(format!("{} in {}", selected(set)?, describe_block(block)))
            }
        }
    }

    /// Whether the address is in the set of a selector.
    fn is_in(&self, selector: &Selector, end: &End<'_>) -> bool {
        if let Scope::Nodes(labels) = &selector.scope {
            let mut nodes = self.given.store.nodes().filter(|node| labels.matches(&node.labels));
            return nodes.any(|node| node.host_addresses.valid().is_some_and(|all| all.contains(&end.address)));
        }
        match end.who {
            Who::Pod(pod) => selector.selects(pod, &self.given.store.labels_of(&pod.key.namespace)),
            Who::Node(_) | Who::Outside => false,
        }
    }

    fn clauses(&self) -> impl Iterator<Item = &Clause> {
        let all = self.network.values().flatten().chain(&self.admin).chain(&self.baseline);
        all.flat_map(|policy| &policy.compiled.clauses)
    }

    /// The networks that clauses speak of: within one, all addresses that nobody of the cluster has are equal.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Prefix> {
        let blocks = self.clauses().filter_map(|clause| match &clause.others {
            Others::Anyone => None,
            Others::Those { blocks, .. } | Others::Within { blocks, .. } => Some(blocks),
        });
        blocks.flatten().flat_map(|(cidr, except)| std::iter::once(*cidr).chain(except.iter().copied()))
    }

    /// The ranges of ports that clauses speak of.
    pub(super) fn ranges(&self, protocol: Protocol) -> impl Iterator<Item = (u16, u16)> {
        let ports = self.clauses().flat_map(|clause| &clause.ports);
        ports.filter(move |(of, _)| *of == protocol).filter_map(|(_, range)| *range)
    }
}

fn check_frozen(policy: &Policy) -> Result<(), CannotTell> {
    if !policy.frozen {
        return Ok(());
    }
    let why = "cannot be understood, and the rules that the database has for it stay in force";
    Err(CannotTell(format!("{} {why}: correct it, then ask again", policy.object)))
}

fn of_network_policy(policy: &PolicyFacts, given: Inputs<'_>) -> Policy {
    let object = format!("NetworkPolicy {}", policy.key);
    let directions = [(Direction::Ingress, &policy.spec.ingress), (Direction::Egress, &policy.spec.egress)];
    let instead = if policy.last_good {
        "what it said before stays in force"
    } else {
        "the pods that it selects are closed in its directions"
    };
    let compiled = of_policy(policy, given.store);
    let rules = |direction: Direction| {
        let clauses = compiled.clauses.iter().filter(|clause| clause.direction == direction);
        clauses.map(|clause| clause.place).collect::<BTreeSet<usize>>().len()
    };
    let closes = directions.into_iter().filter(|(_, rules)| rules.is_some());
    let closes = closes.map(|(direction, _)| (direction.field(), rules(direction))).collect();
    Policy {
        compiled,
        closes,
        trouble: trouble(&object, policy.broken.as_deref(), instead),
        frozen: given.store.is_frozen(&Owner::Policy(policy.key.clone())),
        object,
    }
}

/// The AdminNetworkPolicies in the order in which they are asked, or the baseline. One that was never understood, and one
/// that the database has no tier or no room for, says nothing.
fn admin_policies(baseline: bool, given: Inputs<'_>) -> Vec<Policy> {
    if !given.settings.features.has(Feature::AclTiers) {
        return Vec::new();
    }
    let kind = if baseline { "BaselineAdminNetworkPolicy" } else { "AdminNetworkPolicy" };
    let has_room = |name: &str| baseline || given.store.has_priorities(name);
    let mut policies: Vec<&AdminPolicyFacts> = given.store.admin_policies(baseline).collect();
    policies.sort_by_key(|policy| policy.rank());
    let policies = policies.into_iter().filter_map(|policy| {
        let name: Name = (*policy.key.name).into();
        let owner = if baseline { Owner::BaselinePolicy(name) } else { Owner::AdminPolicy(name) };
        let frozen = given.store.is_fixed(&owner);
        let object = format!("{kind} {}", policy.key.name);
        let compiled = of_admin_policy(policy, given.store).filter(|_| has_room(&policy.key.name));
        if compiled.is_none() && !frozen {
            return None;
        }
        let nothing =
            Compiled { target: "".into(), clauses: Vec::new(), selectors: BTreeMap::new(), named: BTreeSet::new() };
        let trouble = trouble(&object, policy.broken.as_deref(), "what it said before stays in force");
        Some(Policy { object, compiled: compiled.unwrap_or(nothing), closes: BTreeMap::new(), trouble, frozen })
    });
    policies.collect()
}

fn trouble(object: &str, broken: Option<&str>, instead: &str) -> Option<Step> {
    let why = broken?;
    let field = why.split_once(": ").map_or("spec", |(field, _)| field);
    Some(step(object.to_owned(), field, format!("it cannot be understood ({why}): {instead}")))
}

/// A block, to be read.
fn describe_block((cidr, except): &(Prefix, Box<[Prefix]>)) -> String {
    let without: Vec<String> = except.iter().map(ToString::to_string).collect();
    if without.is_empty() { cidr.to_string() } else { format!("{cidr} without {}", without.join(", ")) }
}

fn says(clause: &Clause, whom: &str) -> String {
    let action = match clause.action {
        Action::Allow => "allows",
        Action::Deny => "denies",
        Action::Pass => "leaves to NetworkPolicies",
    };
    let way = match clause.direction {
        Direction::Ingress => "what comes from",
        Direction::Egress => "what is sent to",
    };
    let over = if clause.ports.is_empty() { "on all ports".to_owned() } else { format!("on {}", doors(&clause.ports)) };
    format!("{action} {way} {whom} {over}")
}

fn doors(ports: &[(Protocol, Option<(u16, u16)>)]) -> String {
    let door = |(protocol, range): &(Protocol, Option<(u16, u16)>)| match range {
        None => format!("all of {}", protocol.word()),
        Some((first, last)) if first == last => format!("{first}/{}", protocol.word()),
        Some((first, last)) => format!("{first}-{last}/{}", protocol.word()),
    };
    ports.iter().map(door).collect::<Vec<_>>().join(", ")
}

/// A selector, to be read.
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
