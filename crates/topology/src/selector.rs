//! Pods (or nodes) that policies speak of, by the words of their selectors: shared by all policies that use the same words.
//!
//! A selector is known by its words alone and can be read back from them: so what stands in the database says whom it is
//! about, also when the policy that wanted it is gone.

use std::fmt;

use crate::identity::{Name, hashed_name};
use crate::objects::{ContainerPort, LabelSelector, Labels, PodFacts, Protocol};

/// What of them is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Their ports, as a group: whom a policy is about.
    Ports,
    /// Their addresses, as sets: with whom they may talk.
    Addresses,
}

/// Where they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Pods of one namespace.
    Namespace(Name),
    /// Pods of the namespaces with such labels.
    Namespaces(LabelSelector),
    /// Not pods, but nodes with such labels.
    Nodes(LabelSelector),
}

/// Pods or nodes that policies speak of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// What of them.
    pub role: Role,
    /// Where.
    pub scope: Scope,
    /// Which of the pods there.
    pub pods: LabelSelector,
    /// Only those with this port.
    pub port: Option<ContainerPort>,
}

impl Selector {
    /// A selector without a port.
    pub fn new(role: Role, scope: Scope, pods: LabelSelector) -> Self {
        Self { role, scope, pods, port: None }
    }

    /// The same pods, as far as they have a port.
    #[must_use]
    pub fn with_port(&self, port: ContainerPort) -> Self {
        Self { port: Some(port), ..self.clone() }
    }

    /// The words that it is known by.
    pub fn words(&self) -> Name {
        self.to_string().into()
    }

    /// Reads the words.
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

    /// Whether a pod in a namespace with these labels is one of them.
    pub fn selects(&self, pod: &PodFacts, namespace: &Labels) -> bool {
        let there = match &self.scope {
            Scope::Namespace(name) => *name == pod.key.namespace,
            Scope::Namespaces(labels) => labels.matches(namespace),
            Scope::Nodes(_) => false,
        };
        there && self.selects_there(pod)
    }

    /// Whether a pod is one of them, given that it is where they are.
    pub fn selects_there(&self, pod: &PodFacts) -> bool {
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

/// The name of the group of a selector's ports.
pub fn group_name(words: &str) -> String {
    hashed_name(words)
}

/// The name of the set of a selector's addresses of a family.
pub fn set_name(words: &str, v6: bool) -> String {
    hashed_name(&format!("{words} {}", if v6 { "v6" } else { "v4" }))
}

/// The names of groups and sets in a match.
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
    fn words_can_be_read_back() {
        let web = LabelSelector::parse("app=web|api,!old").unwrap();
        let port = ContainerPort { name: "http".into(), protocol: Protocol::Tcp, number: 8080 };
        for selector in [
            Selector::new(Role::Ports, Scope::Namespace("default".into()), LabelSelector::default()),
            Selector::new(Role::Ports, Scope::Namespace("default".into()), web.clone()).with_port(port.clone()),
            Selector::new(Role::Addresses, Scope::Namespaces(LabelSelector::default()), web.clone()),
            Selector::new(Role::Addresses, Scope::Namespaces(web.clone()), web.clone()).with_port(port),
            Selector::new(Role::Addresses, Scope::Nodes(web), LabelSelector::default()),
        ] {
            assert_eq!(Selector::parse(&selector.words()), Some(selector));
        }
        assert_eq!(Selector::parse("somebody"), None);
    }

    #[test]
    fn names_in_matches() {
        let names: Vec<&str> = named_in("outport == @a1 && ip4.src == {$a2, $a3} && tcp").collect();
        assert_eq!(names, ["a1", "a2", "a3"]);
    }
}
