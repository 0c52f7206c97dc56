//! Selectors of pods or nodes, shared by all policies with equal ones.
//!
//! A selector is identified by its canonical text (`words`) and can be parsed from it: so the rows of the database say what
//! they select, also when the policy is gone.

use std::fmt;

use netmodel::Family;
use objects::{ContainerPort, LabelSelector, Labels, Name, PodFacts, Protocol};

use crate::identity::hashed_name;

/// What is collected of the selected objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Logical ports, in a port group: the subject of a policy.
    Ports,
    /// Addresses, in address sets: the peers of a rule.
    Addresses,
}

/// Where objects are selected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Pods of this namespace only.
    Namespace(Name),
    /// Pods of the namespaces with matching labels.
    Namespaces(LabelSelector),
    /// Nodes with matching labels, instead of pods.
    Nodes(LabelSelector),
}

/// A selector of pods or nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// Ports or addresses.
    pub role: Role,
    /// Namespaces, or nodes.
    pub scope: Scope,
    /// Pod labels; ignored for nodes.
    pub pods: LabelSelector,
    /// Only pods with this named port.
    pub port: Option<ContainerPort>,
}

impl Selector {
    /// A selector without a port.
    pub fn new(role: Role, scope: Scope, pods: LabelSelector) -> Self {
        Self { role, scope, pods, port: None }
    }

    /// Restricts it to pods with a named port.
    #[must_use]
    pub fn with_port(&self, port: ContainerPort) -> Self {
        Self { port: Some(port), ..self.clone() }
    }

    /// The canonical text that identifies it.
    pub fn canonical(&self) -> Name {
        self.to_string().into()
    }

    /// Parses the canonical text.
    pub fn parse(words: &str) -> Option<Self> {
        let (role, rest) = words.split_once(" in ")?;
        let role = match role {
            "ports" => Role::Ports,
            "addresses" => Role::Addresses,
            _ => return None,
        };
        let mut parts = rest.split("; ");
        let (kind, scope) = parts.next()?.split_once(' ')?;
        let scope = match kind {
            "namespace" => Scope::Namespace(scope.into()),
            "namespaces" => Scope::Namespaces(LabelSelector::parse(scope)?),
            "nodes" => Scope::Nodes(LabelSelector::parse(scope)?),
            _ => return None,
        };
        let pods = LabelSelector::parse(parts.next()?.strip_prefix("pods ")?)?;
        let port = match parts.next() {
            None => None,
            Some(text) => {
                let (name, rest) = text.strip_prefix("port ")?.split_once('/')?;
                let (protocol, number) = rest.split_once('=')?;
                let (protocol, number) = (Protocol::parse(protocol)?, number.parse().ok()?);
                Some(ContainerPort { name: name.into(), protocol, number })
            }
        };
        Some(Self { role, scope, pods, port })
    }

    /// Whether a pod is selected; `namespace` has the labels of its namespace.
    pub fn selects(&self, pod: &PodFacts, namespace: &Labels) -> bool {
        let there = match &self.scope {
            Scope::Namespace(name) => *name == pod.key.namespace,
            Scope::Namespaces(labels) => labels.matches(namespace),
            Scope::Nodes(_) => false,
        };
        there && self.selects_in_scope(pod)
    }

    /// Whether a pod is selected, given that its namespace is in scope.
    pub fn selects_in_scope(&self, pod: &PodFacts) -> bool {
        self.port.as_ref().is_none_or(|port| pod.ports.contains(port)) && self.pods.matches(&pod.labels)
    }
}

impl fmt::Display for Selector {
    /// `addresses in namespaces team=blue; pods app=web; port http/TCP=8080`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.role {
            Role::Ports => "ports in ",
            Role::Addresses => "addresses in ",
        })?;
        match &self.scope {
            Scope::Namespace(name) => write!(f, "namespace {name}")?,
            Scope::Namespaces(labels) => write!(f, "namespaces {labels}")?,
            Scope::Nodes(labels) => write!(f, "nodes {labels}")?,
        }
        write!(f, "; pods {}", self.pods)?;
        match &self.port {
            Some(ContainerPort { name, protocol, number }) => write!(f, "; port {name}/{}={number}", protocol.name()),
            None => Ok(()),
        }
    }
}

/// Name of the port group with the selected ports: a hash, because canonical texts are long.
pub fn group_name(words: &str) -> String {
    hashed_name(words)
}

/// The name of the address set of a family.
pub fn set_name(words: &str, family: Family) -> String {
    hashed_name(&format!("{words} {}", family.short()))
}

/// The names of port groups and address sets in a match.
pub fn named_in(matching: &str) -> impl Iterator<Item = &str> {
    matching.split(['@', '$']).skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_texts_parse_to_the_same_selector() {
        let web = LabelSelector::parse("app=web|api,!old").unwrap();
        let port = ContainerPort { name: "http".into(), protocol: Protocol::Tcp, number: 8080 };
        for selector in [
            Selector::new(Role::Ports, Scope::Namespace("default".into()), LabelSelector::default()),
            Selector::new(Role::Ports, Scope::Namespace("default".into()), web.clone()).with_port(port.clone()),
            Selector::new(Role::Addresses, Scope::Namespaces(LabelSelector::default()), web.clone()),
            Selector::new(Role::Addresses, Scope::Namespaces(web.clone()), web.clone()).with_port(port),
            Selector::new(Role::Addresses, Scope::Nodes(web), LabelSelector::default()),
        ] {
            assert_eq!(Selector::parse(&selector.canonical()), Some(selector));
        }
        assert_eq!(Selector::parse("other"), None);
    }

    #[test]
    fn names_of_groups_and_sets_are_found_in_matches() {
        let names: Vec<&str> = named_in("outport == @a1 && ip4.src == {$a2, $a3} && tcp").collect();
        assert_eq!(names, ["a1", "a2", "a3"]);
    }
}
