//! AdminNetworkPolicy and BaselineAdminNetworkPolicy: `policy.networking.k8s.io/v1alpha1`.

use serde::Deserialize;

use crate::address::Cidr;
use crate::cluster::Cluster;
use crate::end::{AddressOwner, End};
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
    ingress: Vec<IngressRule>,
    #[serde(default)]
    egress: Vec<EgressRule>,
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
    ingress: Vec<IngressRule>,
    #[serde(default)]
    egress: Vec<EgressRule>,
}

/// What a rule does with traffic that matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Action {
    Allow,
    Deny,
    /// Defer to NetworkPolicies: later rules and AdminNetworkPolicies are skipped.
    Pass,
}

/// All pods of the selected namespaces, or only the selected ones.
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

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct IngressRule {
    #[serde(default)]
    name: String,
    action: Action,
    from: Vec<PodsOrNamespaces>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct EgressRule {
    #[serde(default)]
    name: String,
    action: Action,
    to: Vec<EgressPeer>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
enum EgressPeer {
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

/// The action of the first matching rule, of the policies by priority and name.
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
        let AdminSpec { priority, ingress, egress, .. } = &policy.spec;
        let (rule, action) = first_match(cluster, direction, traffic, ingress, egress)?;
        let name = &policy.metadata.name;
        why.push(format!("{direction} of {pod}: AdminNetworkPolicy {name} ({priority}) says {action:?} by {rule}"));
        Some(action)
    })
}

/// The action of the BaselineAdminNetworkPolicy. A cluster has at most one, named `default`.
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
    let (rule, action) = first_match(cluster, direction, traffic, &policy.spec.ingress, &policy.spec.egress)?;
    why.push(format!("{direction} of {pod}: BaselineAdminNetworkPolicy says {action:?} by {rule}"));
    Some(action)
}

/// The first matching rule of a direction, and its action.
///
/// Peer and port must both match. The API requires at least one peer; a rule without peers would match nothing.
fn first_match(
    cluster: &Cluster,
    direction: Direction,
    traffic: &Traffic<'_>,
    ingress: &[IngressRule],
    egress: &[EgressRule],
) -> Option<(String, Action)> {
    match direction {
        Direction::Ingress => ingress.iter().enumerate().find_map(|(index, rule)| {
            let peer = rule.from.iter().any(|peer| traffic.from.pod().is_some_and(|pod| peer.has(cluster, pod)));
            let matches = peer && ports_match(&rule.ports, traffic);
            matches.then(|| (format!("ingress[{index}] {:?}", rule.name), rule.action))
        }),
        Direction::Egress => egress.iter().enumerate().find_map(|(index, rule)| {
            let peer = rule.to.iter().any(|peer| peer.is(cluster, &traffic.to));
            let matches = peer && ports_match(&rule.ports, traffic);
            matches.then(|| (format!("egress[{index}] {:?}", rule.name), rule.action))
        }),
    }
}

fn ports_match(ports: &[Port], traffic: &Traffic<'_>) -> bool {
    ports.is_empty() || ports.iter().any(|port| port.is(traffic))
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

impl EgressPeer {
    fn is(&self, cluster: &Cluster, other: &End<'_>) -> bool {
        match self {
            Self::Namespaces(selector) => {
                other.pod().is_some_and(|pod| selector.matches(&cluster.namespace_labels(&pod.metadata.namespace)))
            }
            Self::Pods(pods) => other.pod().is_some_and(|pod| pods.has(cluster, pod)),
            Self::Nodes(selector) => {
                matches!(other.owner, AddressOwner::Node(node) if selector.matches(&node.metadata.labels))
            }
            // Any owner of the address, pods included.
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
            // A name implies the protocol of the destination's port.
            Self::Name(name) => {
                traffic.to.pod().is_some_and(|pod| pod.has_named_port(name, traffic.protocol, traffic.port))
            }
        }
    }
}
