//! AdminNetworkPolicy and BaselineAdminNetworkPolicy: `policy.networking.k8s.io/v1alpha1`.

use serde::Deserialize;

use crate::address::Cidr;
use crate::cluster::Cluster;
use crate::end::{End, Who};
use crate::objects::{Meta, Pod, Protocol};
use crate::selector::Selector;
use crate::verdict::{Direction, Traffic};

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AdminPolicy {
    metadata: Meta,
    spec: AdminSpec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdminSpec {
    priority: i32,
    subject: PodsOrNamespaces,
    #[serde(default)]
    ingress: Vec<Rule>,
    #[serde(default)]
    egress: Vec<Rule>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BaselinePolicy {
    metadata: Meta,
    spec: BaselineSpec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct BaselineSpec {
    subject: PodsOrNamespaces,
    #[serde(default)]
    ingress: Vec<Rule>,
    #[serde(default)]
    egress: Vec<Rule>,
}

/// What a rule does with traffic that matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Action {
    Allow,
    Deny,
    /// Leave it to the NetworkPolicies: later rules and policies of the administrator are not asked.
    Pass,
}

/// Either all pods of namespaces, or those of their pods that have labels.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
enum PodsOrNamespaces {
    Namespaces(Selector),
    Pods(PodsOfNamespaces),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodsOfNamespaces {
    namespace_selector: Selector,
    pod_selector: Selector,
}

/// An ingress rule has `from`, an egress rule has `to`: the peers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    name: String,
    action: Action,
    #[serde(alias = "from", alias = "to")]
    peers: Vec<Peer>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Peer {
    Namespaces(Selector),
    Pods(PodsOfNamespaces),
    Nodes(Selector),
    Networks(Vec<Cidr>),
}

#[derive(Debug, Clone, Deserialize)]
enum Port {
    #[serde(rename = "portNumber")]
    Number {
        #[serde(default)]
        protocol: Protocol,
        port: u16,
    },
    #[serde(rename = "portRange")]
    Range {
        #[serde(default)]
        protocol: Protocol,
        start: u16,
        end: u16,
    },
    #[serde(rename = "namedPort")]
    Name(String),
}

/// What the AdminNetworkPolicies say: the first rule that matches, of the policies by priority and name.
pub(crate) fn decide(
    cluster: &Cluster,
    direction: Direction,
    pod: &Pod,
    traffic: &Traffic<'_>,
    why: &mut Vec<String>,
) -> Option<Action> {
    let mut policies: Vec<&AdminPolicy> =
        cluster.admin_policies.iter().filter(|policy| policy.spec.subject.has(cluster, pod)).collect();
    policies.sort_by_key(|policy| (policy.spec.priority, policy.metadata.name.clone()));
    policies.into_iter().find_map(|policy| {
        let rules = if direction == Direction::Ingress { &policy.spec.ingress } else { &policy.spec.egress };
        let told = format!("AdminNetworkPolicy {} ({})", policy.metadata.name, policy.spec.priority);
        first_match(cluster, direction, pod, traffic, rules, &told, why)
    })
}

/// What the BaselineAdminNetworkPolicy says. There is at most one in a cluster, and its name is `default`.
pub(crate) fn decide_baseline(
    cluster: &Cluster,
    direction: Direction,
    pod: &Pod,
    traffic: &Traffic<'_>,
    why: &mut Vec<String>,
) -> Option<Action> {
    let policy = cluster.baseline_policies.iter().find(|policy| policy.metadata.name == "default")?;
    if !policy.spec.subject.has(cluster, pod) {
        return None;
    }
    let rules = if direction == Direction::Ingress { &policy.spec.ingress } else { &policy.spec.egress };
    first_match(cluster, direction, pod, traffic, rules, "BaselineAdminNetworkPolicy", why)
}

fn first_match(
    cluster: &Cluster,
    direction: Direction,
    pod: &Pod,
    traffic: &Traffic<'_>,
    rules: &[Rule],
    policy: &str,
    why: &mut Vec<String>,
) -> Option<Action> {
    let (index, rule) = rules.iter().enumerate().find(|(_, rule)| rule.matches(cluster, direction, traffic))?;
    let Rule { name, action, .. } = rule;
    why.push(format!("{direction} of {pod}: {policy} says {action:?} by {direction}[{index}] {name:?}"));
    Some(*action)
}

impl PodsOrNamespaces {
    fn has(&self, cluster: &Cluster, pod: &Pod) -> bool {
        match self {
            Self::Namespaces(selector) => selector.matches(&cluster.namespace_labels(&pod.metadata.namespace)),
            Self::Pods(pods) => pods.has(cluster, pod),
        }
    }
}

impl PodsOfNamespaces {
    fn has(&self, cluster: &Cluster, pod: &Pod) -> bool {
        self.namespace_selector.matches(&cluster.namespace_labels(&pod.metadata.namespace))
            && self.pod_selector.matches(&pod.metadata.labels)
    }
}

impl Rule {
    /// Peer and port both have to match. No ports: every port. A rule has at least one peer, and without any matches none.
    fn matches(&self, cluster: &Cluster, direction: Direction, traffic: &Traffic<'_>) -> bool {
        self.peers.iter().any(|peer| peer.is(cluster, traffic.peer(direction)))
            && (self.ports.is_empty() || self.ports.iter().any(|port| port.is(traffic)))
    }
}

impl Peer {
    fn is(&self, cluster: &Cluster, other: &End<'_>) -> bool {
        match self {
            Self::Namespaces(selector) => {
                other.pod().is_some_and(|pod| selector.matches(&cluster.namespace_labels(&pod.metadata.namespace)))
            }
            Self::Pods(pods) => other.pod().is_some_and(|pod| pods.has(cluster, pod)),
            Self::Nodes(selector) => {
                matches!(other.who, Who::Node(node) if selector.matches(&node.metadata.labels))
            }
            // Whoever has the address: a pod in the block is meant as well.
            Self::Networks(blocks) => blocks.iter().any(|block| block.contains(other.address)),
        }
    }
}

impl Port {
    fn is(&self, traffic: &Traffic<'_>) -> bool {
        match self {
            Self::Number { protocol, port } => *protocol == traffic.protocol && *port == traffic.port,
            Self::Range { protocol, start, end } => {
                *protocol == traffic.protocol && *start <= traffic.port && traffic.port <= *end
            }
            // A name says the protocol as well: that of the destination's port.
            Self::Name(name) => {
                traffic.to.pod().is_some_and(|pod| pod.has_named_port(name, traffic.protocol, traffic.port))
            }
        }
    }
}
