//! NetworkPolicy: `networking.k8s.io/v1`.

use serde::Deserialize;

use crate::address::Cidr;
use crate::cluster::Cluster;
use crate::end::{AddressOwner, End};
use crate::objects::{Meta, Pod, Protocol};
use crate::selector::Selector;
use crate::verdict::{Direction, Traffic};

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NetworkPolicy {
    pub(crate) metadata: Meta,
    spec: Spec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    #[serde(default)]
    pod_selector: Selector,
    #[serde(default)]
    policy_types: Vec<Direction>,
    #[serde(default)]
    ingress: Vec<IngressRule>,
    #[serde(default)]
    egress: Vec<EgressRule>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct IngressRule {
    #[serde(default)]
    from: Vec<Peer>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct EgressRule {
    #[serde(default)]
    to: Vec<Peer>,
    #[serde(default)]
    ports: Vec<Port>,
}

/// A rule of either direction.
struct Rule<'a> {
    peers: &'a [Peer],
    ports: &'a [Port],
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Peer {
    pod_selector: Option<Selector>,
    namespace_selector: Option<Selector>,
    ip_block: Option<IpBlock>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct IpBlock {
    cidr: Cidr,
    #[serde(default)]
    except: Vec<Cidr>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Port {
    #[serde(default)]
    protocol: Protocol,
    port: Option<NumberOrName>,
    end_port: Option<u16>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum NumberOrName {
    Number(u16),
    Name(String),
}

/// Whether NetworkPolicies allow a pod's traffic in one direction; `None` if none isolates the pod.
pub(crate) fn decide(
    cluster: &Cluster,
    direction: Direction,
    pod: &Pod,
    traffic: &Traffic<'_>,
    why: &mut Vec<String>,
) -> Option<bool> {
    let isolating = |policy: &&NetworkPolicy| policy.selects(pod) && policy.has_type(direction);
    let policies: Vec<&NetworkPolicy> = cluster.network_policies.iter().filter(isolating).collect();
    if policies.is_empty() {
        return None;
    }
    if let AddressOwner::Node(node) = traffic.peer(direction).owner {
        let exempt = direction == Direction::Ingress || !cluster.egress_to_own_node_is_filtered;
        if exempt && node.metadata.name == pod.spec.node_name {
            why.push(format!("{direction} of {pod}: NetworkPolicies never block its own node"));
            return Some(true);
        }
    }
    // One matching rule of one policy is enough.
    for policy in &policies {
        for (index, rule) in policy.rules(direction).iter().enumerate() {
            if rule.allows(cluster, policy, direction, traffic) {
                why.push(format!("{direction} of {pod}: NetworkPolicy {policy} allows it by {direction}[{index}]"));
                return Some(true);
            }
        }
    }
    let names: Vec<String> = policies.iter().map(ToString::to_string).collect();
    why.push(format!("{direction} of {pod}: isolated by NetworkPolicy {}, and no rule allows it", names.join(", ")));
    Some(false)
}

impl NetworkPolicy {
    /// A policy selects pods of its own namespace; an empty selector selects all of them.
    fn selects(&self, pod: &Pod) -> bool {
        pod.metadata.namespace == self.metadata.namespace && self.spec.pod_selector.matches(&pod.metadata.labels)
    }

    /// `policyTypes` defaults to Ingress, and Egress if the policy has egress rules.
    fn has_type(&self, direction: Direction) -> bool {
        if !self.spec.policy_types.is_empty() {
            return self.spec.policy_types.contains(&direction);
        }
        match direction {
            Direction::Ingress => true,
            Direction::Egress => !self.spec.egress.is_empty(),
        }
    }

    fn rules(&self, direction: Direction) -> Vec<Rule<'_>> {
        let Spec { ingress, egress, .. } = &self.spec;
        match direction {
            Direction::Ingress => ingress.iter().map(|rule| Rule { peers: &rule.from, ports: &rule.ports }).collect(),
            Direction::Egress => egress.iter().map(|rule| Rule { peers: &rule.to, ports: &rule.ports }).collect(),
        }
    }
}

impl std::fmt::Display for NetworkPolicy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.metadata.namespace, self.metadata.name)
    }
}

impl Rule<'_> {
    /// Peer and port must both match. Without peers all peers match, without ports all ports.
    fn allows(&self, cluster: &Cluster, policy: &NetworkPolicy, direction: Direction, traffic: &Traffic<'_>) -> bool {
        let other = traffic.peer(direction);
        let namespace = &policy.metadata.namespace;
        let peer = self.peers.is_empty() || self.peers.iter().any(|peer| peer.is(cluster, namespace, other));
        let port = self.ports.is_empty() || self.ports.iter().any(|port| port.is(traffic));
        peer && port
    }
}

impl Peer {
    fn is(&self, cluster: &Cluster, policy_namespace: &str, other: &End<'_>) -> bool {
        if let Some(block) = &self.ip_block {
            return block.cidr.contains(other.address) && !block.except.iter().any(|out| out.contains(other.address));
        }
        // Selectors select only pods on the cluster network.
        let Some(pod) = other.pod() else { return false };
        match (&self.namespace_selector, &self.pod_selector) {
            (Some(namespaces), Some(pods)) => {
                namespaces.matches(&cluster.namespace_labels(&pod.metadata.namespace))
                    && pods.matches(&pod.metadata.labels)
            }
            (Some(namespaces), None) => namespaces.matches(&cluster.namespace_labels(&pod.metadata.namespace)),
            (None, Some(pods)) => pod.metadata.namespace == policy_namespace && pods.matches(&pod.metadata.labels),
            (None, None) => false,
        }
    }
}

impl Port {
    /// A named port is resolved at the destination, in both directions.
    fn is(&self, traffic: &Traffic<'_>) -> bool {
        if self.protocol != traffic.protocol {
            return false;
        }
        match (&self.port, self.end_port) {
            (None, _) => true,
            (Some(NumberOrName::Number(first)), None) => *first == traffic.port,
            (Some(NumberOrName::Number(first)), Some(last)) => *first <= traffic.port && traffic.port <= last,
            (Some(NumberOrName::Name(name)), _) => {
                traffic.to.pod().is_some_and(|pod| pod.has_named_port(name, traffic.protocol, traffic.port))
            }
        }
    }
}
