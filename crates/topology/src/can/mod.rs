//! can: whether one may talk to another, and the chain of rules that decides it, each with its object and field.
//!
//! ```text
//!  from, to ──▶ who they are ──▶ is there a way (`reach`) ──▶ does a rule forbid it (`judge`) ──▶ yes or no, and the chain
//! ```
//!
//! What rules there are is asked in one place, [`decide`]; a new kind of rule adds its steps in `judge`.

mod words;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use netmodel::Prefix;

pub use words::{understand, understand_party};

use crate::desired::Given;
use crate::identity::{Name, ObjectKey, PodKey};
use crate::reach::{Exit, leaves, reach};

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

/// How it is talked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// TCP, which is meant where nothing is said.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
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
            Some(port) => write!(f, "{} port {port}/{}", self.party, self.protocol),
            None => write!(f, "{}", self.party),
        }
    }
}

/// One rule of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The object that says it.
    pub object: String,
    /// Where in the object.
    pub field: String,
    /// What it says here.
    pub says: String,
}

/// Yes or no, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the packets arrive.
    pub yes: bool,
    /// What decides it, in order; the last one is the one that does.
    pub chain: Vec<Step>,
}

/// A question that has no answer here: better none than a wrong one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotTell(pub String);

/// Whether packets of one come to the other.
pub fn decide(given: Given<'_>, from: &Party, to: &Destination) -> Result<Answer, CannotTell> {
    let mut chain = Vec::new();
    let way = way(given, from, &to.party, &mut chain)?;
    // Who talks to itself is told once.
    chain.dedup();
    if !way {
        return Ok(Answer { yes: false, chain });
    }
    let yes = judge(given, from, to, &mut chain)?;
    Ok(Answer { yes, chain })
}

/// Whether a rule lets through what has a way. Policies are not known to this core yet: where there is one that may concern
/// the two, nothing is claimed.
fn judge(given: Given<'_>, from: &Party, to: &Destination, _: &mut Vec<Step>) -> Result<bool, CannotTell> {
    let namespaces: Vec<&str> = [from, &to.party].into_iter().filter_map(namespace).collect();
    let of_them = |key: &ObjectKey| namespaces.contains(&&*key.namespace);
    let mut rules: Vec<String> = Vec::new();
    let policies = given.store.policies().filter(|policy| of_them(&policy.key));
    rules.extend(policies.map(|policy| format!("NetworkPolicy {}", policy.key)));
    for (baseline, kind) in [(false, "AdminNetworkPolicy"), (true, "BaselineAdminNetworkPolicy")] {
        rules.extend(given.store.admin_policies(baseline).map(|policy| format!("{kind} {}", policy.key.name)));
    }
    match rules.split_first() {
        None => Ok(true),
        Some((first, [])) => Err(CannotTell(format!("there is a way, but {first} may forbid it: {NOT_JUDGED}"))),
        Some((first, rest)) => {
            let more = rest.len();
            Err(CannotTell(format!("there is a way, but {first} and {more} more may forbid it: {NOT_JUDGED}")))
        }
    }
}

const NOT_JUDGED: &str = "this version does not judge policies yet";

fn namespace(party: &Party) -> Option<&str> {
    match party {
        Party::Pod(key) | Party::Service(key) => Some(&key.namespace),
        Party::Node(_) | Party::Network(_) => None,
    }
}

/// Whether there is a way, whatever rules say.
fn way(given: Given<'_>, from: &Party, to: &Party, chain: &mut Vec<Step>) -> Result<bool, CannotTell> {
    let Some(from) = resident(given, from, chain) else { return Ok(false) };
    let Some(to) = resident(given, to, chain) else { return Ok(false) };
    match (from, to) {
        (Party::Pod(from), Party::Pod(to)) => Ok(pod_to_pod(given, &from, &to, chain)),
        (Party::Pod(from), Party::Node(to)) => pod_to_node(given, &from, &to, chain),
        (Party::Pod(from), Party::Network(to)) => pod_to_network(given, &from, to, chain),
        (Party::Node(from), Party::Pod(_)) => {
            let says = format!("the host reaches every pod of the cluster by its port k8s-{from}");
            chain.push(step(format!("Node {from}"), "k8s.ovn.org/node-subnets", says));
            Ok(true)
        }
        (_, Party::Service(key)) => {
            Err(CannotTell(format!("Service {key}: this version does not judge Services yet; ask for a pod behind it")))
        }
        (from, to) => {
            Err(CannotTell(format!("{from} to {to} does not pass the cluster's network: nothing here decides it")))
        }
    }
}

/// Who it is on the network: a pod on its host's network is the node; an address of a pod is the pod. None if it has no
/// place there at all, which is told.
fn resident(given: Given<'_>, party: &Party, chain: &mut Vec<Step>) -> Option<Party> {
    let key = match party {
        Party::Network(prefix) if is_single(*prefix) => {
            let holder = given.allocator.pods().find(|(_, own)| own.addresses().any(|one| one == prefix.network()));
            match holder {
                Some((key, _)) => key,
                None => return Some(party.clone()),
            }
        }
        Party::Pod(key) => key,
        _ => return Some(party.clone()),
    };
    let object = format!("Pod {key}");
    let pod = given.store.pod(key)?;
    let Some(node) = &pod.node else {
        chain.push(step(object, "spec.nodeName", "it is on no node, and has no network"));
        return None;
    };
    if pod.finished {
        chain.push(step(object, "status.phase", "it has ended, and has no network any more"));
        return None;
    }
    if pod.host_network {
        chain.push(step(object, "spec.hostNetwork", format!("it is on the network of its node {node}")));
        return Some(Party::Node(node.clone()));
    }
    let Some(own) = given.allocator.pod(key) else {
        let says = format!("node {node} has no address for it: it is refused, or its node is not there");
        chain.push(step(object, "spec.nodeName", says));
        return None;
    };
    let addresses: Vec<String> = own.addresses().map(|address| address.to_string()).collect();
    let says = format!("on node {node}, port {} with {}", key.port_name(), addresses.join(" and "));
    chain.push(step(object, "spec.nodeName", says));
    Some(Party::Pod(pod.key.clone()))
}

fn pod_to_pod(given: Given<'_>, from: &PodKey, to: &PodKey, chain: &mut Vec<Step>) -> bool {
    let mut any = false;
    for v6 in given.settings.families() {
        let Some(path) = reach(given, from, to, v6) else { continue };
        any = true;
        let node = given.store.pod(to).and_then(|pod| pod.node.clone()).unwrap_or_else(|| "".into());
        let subnets = given.allocator.node(&node).into_iter().flat_map(crate::allocation::NodeAllocation::subnets);
        let subnet = subnets.into_iter().find(|subnet| subnet.is_ipv6() == v6).map(|subnet| subnet.to_string());
        let subnet = subnet.unwrap_or_default();
        let says = if path.routed {
            format!("{subnet} is behind ovn_cluster_router, on switch {node}")
        } else {
            format!("both are on its switch, {subnet}")
        };
        chain.push(step(format!("Node {node}"), "k8s.ovn.org/node-subnets", says));
    }
    if !any {
        chain.push(step(format!("Pod {to}"), "k8s.ovn.org/pod-networks", "no address of it can be reached from there"));
    }
    any
}

fn pod_to_node(given: Given<'_>, from: &PodKey, to: &Name, chain: &mut Vec<Step>) -> Result<bool, CannotTell> {
    let addresses = given.store.node(to).and_then(|node| node.host_addresses.valid());
    let Some(address) = addresses.and_then(|addresses| addresses.first()) else {
        let hint = "its agent has not told k8s.ovn.org/host-cidrs";
        return Err(CannotTell(format!("Node {to}: its addresses are not known, {hint}")));
    };
    if given.store.pod(from).is_some_and(|pod| pod.node.as_ref() == Some(to)) {
        let says = format!("{address} is the pod's own host, behind port k8s-{to}");
        chain.push(step(format!("Node {to}"), "k8s.ovn.org/host-cidrs", says));
        return Ok(true);
    }
    let says = format!("it has the address {address}");
    chain.push(step(format!("Node {to}"), "k8s.ovn.org/host-cidrs", says));
    Ok(outside(given, from, *address, chain))
}

fn pod_to_network(given: Given<'_>, from: &PodKey, to: Prefix, chain: &mut Vec<Step>) -> Result<bool, CannotTell> {
    let inside = |prefix: &Prefix| prefix.is_ipv6() == to.is_ipv6() && (prefix.overlaps(to));
    if given.settings.cluster.iter().map(|cidr| cidr.cidr).any(|cidr| inside(&cidr)) {
        if is_single(to) {
            chain.push(step(
                to.network().to_string(),
                "cluster-subnets",
                "it is an address of the cluster that no pod has",
            ));
            return Ok(false);
        }
        return Err(CannotTell(format!("{to} has addresses of pods: ask for the pods, or for networks outside")));
    }
    Ok(outside(given, from, to.network(), chain))
}

/// Whether a pod's packets to an address outside leave the cluster.
fn outside(given: Given<'_>, from: &PodKey, to: IpAddr, chain: &mut Vec<Step>) -> bool {
    let node = given.store.pod(from).and_then(|pod| pod.node.clone()).unwrap_or_else(|| "".into());
    let (yes, says) = match leaves(given, from, to) {
        Some(Exit::Gateway { router, source, next_hops }) => {
            let hops: Vec<String> = next_hops.iter().map(ToString::to_string).collect();
            (true, format!("leaves by {router} as {source}, to {}", hops.join(" or ")))
        }
        Some(Exit::Host { port }) => (true, format!("leaves by {port} and the host's own routing")),
        None => (false, "the node has no gateway for it".to_owned()),
    };
    chain.push(step(format!("Node {node}"), "k8s.ovn.org/l3-gateway-config", says));
    yes
}

fn is_single(prefix: Prefix) -> bool {
    prefix.length() == if prefix.is_ipv6() { 128 } else { 32 }
}

fn step(object: String, field: &str, says: impl Into<String>) -> Step {
    Step { object, field: field.to_owned(), says: says.into() }
}

#[cfg(test)]
mod tests;
