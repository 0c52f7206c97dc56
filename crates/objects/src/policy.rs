//! NetworkPolicies.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::annotation::shortened;
use super::labels::LabelSelector;
use super::rule::{Action, Peer, PortRule, Ports, Rule, port_name, prefix, protocol};
use super::{Metadata, field};
use crate::{Name, ObjectKey};

/// A NetworkPolicy; an invalid one is kept with its last valid spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFacts {
    /// Unique among objects of its kind at one time.
    pub key: Arc<ObjectKey>,
    /// Tells objects apart that had the same name one after the other.
    pub uid: Name,
    /// `creationTimestamp`; compares as time does.
    pub created: Box<str>,
    /// If invalid: the last valid spec, or one that isolates the selected pods.
    pub spec: Arc<PolicySpec>,
    /// The first invalid field, and why.
    pub broken: Option<Box<str>>,
    /// Whether `spec` is that of an earlier version, because this one is invalid.
    pub last_valid: bool,
}

/// The valid form of a NetworkPolicy's spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySpec {
    /// Selects pods of its namespace.
    pub target: LabelSelector,
    /// None: the policy does not apply to ingress. Empty: nothing is allowed.
    pub ingress: Option<Box<[Rule]>>,
    /// None: the policy does not apply to egress. Empty: nothing is allowed.
    pub egress: Option<Box<[Rule]>>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(default)]
    spec: Value,
}

impl PolicyFacts {
    /// Parses the object's JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        let Object { metadata, spec } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        metadata.check("NetworkPolicy")?;
        let read = read(&spec);
        Ok(Self {
            key: Arc::new(ObjectKey::new(&metadata.namespace, &metadata.name)),
            uid: metadata.uid.as_ref().into(),
            created: metadata.created(),
            broken: read.as_ref().err().map(|why| why.as_str().into()),
            spec: Arc::new(read.unwrap_or_else(|_| isolating(&spec))),
            last_valid: false,
        })
    }

    /// If this version is invalid, takes the spec of the last valid version of the same policy.
    pub fn keep_last_valid(&mut self, before: &Self) {
        if self.broken.is_some() && self.uid == before.uid && (before.broken.is_none() || before.last_valid) {
            self.spec = before.spec.clone();
            self.last_valid = true;
        }
    }
}

/// The effect of an invalid policy without a valid predecessor: the selected pods (all, if the selector is invalid) are
/// isolated in its directions.
fn isolating(spec: &Value) -> PolicySpec {
    let target = field::get(spec, "podSelector").map(|value| LabelSelector::read(value, "spec.podSelector"));
    let (ingress, egress) = directions(spec).unwrap_or((true, true));
    let no_rules = || Box::from([]);
    PolicySpec {
        target: target.and_then(Result::ok).unwrap_or_default(),
        ingress: ingress.then(no_rules),
        egress: egress.then(no_rules),
    }
}

/// Whether it applies to ingress and to egress.
fn directions(spec: &Value) -> Result<(bool, bool), String> {
    let types = field::list(spec, "policyTypes", "spec")?;
    if types.is_empty() {
        // The API's default: ingress always, egress if it has rules.
        return Ok((true, !field::list(spec, "egress", "spec")?.is_empty()));
    }
    let (mut ingress, mut egress) = (false, false);
    for (index, kind) in types.iter().enumerate() {
        let path = format!("spec.policyTypes[{index}]");
        match field::text(kind, &path)? {
            "Ingress" => ingress = true,
            "Egress" => egress = true,
            other => return Err(format!("{path}: {} is neither Ingress nor Egress", shortened(other))),
        }
    }
    Ok((ingress, egress))
}

fn read(spec: &Value) -> Result<PolicySpec, String> {
    field::only(spec, &["podSelector", "policyTypes", "ingress", "egress"], "spec")?;
    let selector = field::get(spec, "podSelector").map(|value| LabelSelector::read(value, "spec.podSelector"));
    let (ingress, egress) = directions(spec)?;
    // Rules of a direction that the policy does not apply to are validated too.
    let (ingress_rules, egress_rules) = (rules(spec, "ingress", "from")?, rules(spec, "egress", "to")?);
    Ok(PolicySpec {
        target: selector.transpose()?.unwrap_or_default(),
        ingress: ingress.then_some(ingress_rules),
        egress: egress.then_some(egress_rules),
    })
}

fn rules(spec: &Value, direction: &str, peers_field: &str) -> Result<Box<[Rule]>, String> {
    let rules = field::list(spec, direction, "spec")?.iter().enumerate().map(|(index, rule)| {
        let path = format!("spec.{direction}[{index}]");
        field::only(rule, &["ports", peers_field], &path)?;
        let peers = field::list(rule, peers_field, &path)?.iter().enumerate();
        let peers = peers.map(|(index, value)| peer(value, &format!("{path}.{peers_field}[{index}]")));
        let peers: Box<[Peer]> = peers.collect::<Result<_, String>>()?;
        let ports = field::list(rule, "ports", &path)?.iter().enumerate();
        let ports = ports.map(|(index, value)| port_rule(value, &format!("{path}.ports[{index}]")));
        Ok(Rule {
            action: Action::Allow,
            name: None,
            peers: (!peers.is_empty()).then_some(peers),
            ports: ports.collect::<Result<_, String>>()?,
        })
    });
    rules.collect()
}

fn peer(value: &Value, path: &str) -> Result<Peer, String> {
    field::only(value, &["podSelector", "namespaceSelector", "ipBlock"], path)?;
    let selector = |key: &str| {
        let value = field::get(value, key);
        value.map(|value| LabelSelector::read(value, &format!("{path}.{key}"))).transpose()
    };
    let (pods, namespaces) = (selector("podSelector")?, selector("namespaceSelector")?);
    let Some(block) = field::get(value, "ipBlock") else {
        if pods.is_none() && namespaces.is_none() {
            return Err(format!("{path}: needs a podSelector, a namespaceSelector or an ipBlock"));
        }
        return Ok(Peer::Pods { namespaces, pods: pods.unwrap_or_default() });
    };
    let path = format!("{path}.ipBlock");
    if pods.is_some() || namespaces.is_some() {
        return Err(format!("{path}: cannot be combined with a selector"));
    }
    field::only(block, &["cidr", "except"], &path)?;
    let cidr = prefix(field::required_text(block, "cidr", &path)?, &format!("{path}.cidr"))?;
    let mut except = Vec::new();
    for (index, value) in field::list(block, "except", &path)?.iter().enumerate() {
        let path = format!("{path}.except[{index}]");
        let part = prefix(field::text(value, &path)?, &path)?;
        if !cidr.contains_prefix(part) || part == cidr {
            return Err(format!("{path}: {part} is not a smaller network inside {cidr}"));
        }
        except.push(part);
    }
    Ok(Peer::Block { cidr, except: except.into() })
}

fn port_rule(value: &Value, path: &str) -> Result<PortRule, String> {
    field::only(value, &["protocol", "port", "endPort"], path)?;
    let protocol = protocol(value, path)?;
    let (at, end) = (format!("{path}.port"), format!("{path}.endPort"));
    let last = field::get(value, "endPort");
    let ports = match (field::get(value, "port"), last) {
        (None, None) => Ports::All,
        (None, Some(_)) => return Err(format!("{end}: needs a port")),
        (Some(Value::String(_)), Some(_)) => return Err(format!("{end}: cannot be combined with a named port")),
        (Some(Value::String(name)), None) => Ports::Named(port_name(name, &at)?),
        (Some(first), None) => {
            let port = field::port(first, &at)?;
            Ports::Range(port, port)
        }
        (Some(first), Some(last)) => {
            let (first, last) = (field::port(first, &at)?, field::port(last, &end)?);
            if last < first {
                return Err(format!("{end}: {last} is below the port {first}"));
            }
            Ports::Range(first, last)
        }
    };
    Ok(PortRule { protocol, ports })
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(spec: Value) -> PolicyFacts {
        let object = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec});
        PolicyFacts::parse(&object.to_string()).unwrap()
    }

    #[test]
    fn directions_default_as_in_the_api() {
        for (spec, directions) in [
            (json!({"podSelector": {}}), (true, false)),
            (json!({"podSelector": {}, "egress": [{}]}), (true, true)),
            (json!({"podSelector": {}, "egress": []}), (true, false)),
            (json!({"podSelector": {}, "policyTypes": ["Egress"]}), (false, true)),
            (json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}), (true, true)),
            (json!({"podSelector": {}, "policyTypes": ["Ingress"], "egress": [{}]}), (true, false)),
        ] {
            let policy = policy(spec.clone());
            assert_eq!(policy.broken, None);
            assert_eq!((policy.spec.ingress.is_some(), policy.spec.egress.is_some()), directions, "{spec}");
        }
    }

    #[test]
    fn rules_are_parsed() {
        let policy = policy(json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [
            {"from": [{"podSelector": {}}, {"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}},
                {"ipBlock": {"cidr": "10.0.0.1/8", "except": ["10.1.0.0/16"]}}],
             "ports": [{"port": 80}, {"protocol": "UDP", "port": 1000, "endPort": 2000}, {"protocol": "SCTP"}, {"port": "http"}]},
            {}]}));
        assert_eq!(policy.broken, None);
        let rules = policy.spec.ingress.as_deref().unwrap();
        let peers = rules[0].peers.as_deref().unwrap();
        assert!(matches!(&peers[0], Peer::Pods { namespaces: None, .. }));
        assert!(
            matches!(&peers[2], Peer::Block { cidr, except } if cidr.to_string() == "10.0.0.0/8" && except.len() == 1)
        );
        assert_eq!(rules[0].ports[0], PortRule { protocol: crate::Protocol::Tcp, ports: Ports::Range(80, 80) });
        assert_eq!(rules[0].ports[3].ports, Ports::Named("http".into()));
        assert_eq!((rules[1].peers.is_none(), rules[1].ports.len()), (true, 0));
    }

    #[test]
    fn invalid_policies_name_the_field_and_isolate() {
        for (spec, field) in [
            (json!("x"), "spec: "),
            (json!({"podSelector": {}, "rules": []}), "spec.rules: "),
            (json!({"podSelector": 7}), "spec.podSelector: "),
            (json!({"podSelector": {}, "policyTypes": ["Sideways"]}), "spec.policyTypes[0]: "),
            (json!({"podSelector": {}, "ingress": "x"}), "spec.ingress: "),
            (json!({"podSelector": {}, "ingress": [{"from": [{}]}]}), "spec.ingress[0].from[0]: "),
            (json!({"podSelector": {}, "ingress": [{"to": []}]}), "spec.ingress[0].to: "),
            (
                json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "x"}}]}]}),
                "spec.ingress[0].from[1].ipBlock.cidr: ",
            ),
            (
                json!({"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]}]}),
                "spec.egress[0].to[0].ipBlock.except[0]: ",
            ),
            (json!({"podSelector": {}, "ingress": [{"ports": [{"port": 70000}]}]}), "spec.ingress[0].ports[0].port: "),
            (
                json!({"podSelector": {}, "ingress": [{"ports": [{"port": 9, "endPort": 8}]}]}),
                "spec.ingress[0].ports[0].endPort: ",
            ),
            (
                json!({"podSelector": {}, "ingress": [{"ports": [{"port": "http", "endPort": 8}]}]}),
                "spec.ingress[0].ports[0].endPort: ",
            ),
            (
                json!({"podSelector": {}, "ingress": [{"ports": [{"protocol": "ICMP"}]}]}),
                "spec.ingress[0].ports[0].protocol: ",
            ),
            (
                json!({"podSelector": {}, "ingress": [{"ports": [{"port": "NOT A NAME"}]}]}),
                "spec.ingress[0].ports[0].port: ",
            ),
        ] {
            let policy = policy(spec.clone());
            let why = policy.broken.unwrap();
            assert!(why.starts_with(field), "{why}");
            let rules = policy.spec.ingress.iter().chain(&policy.spec.egress);
            assert_eq!(rules.map(|rules| rules.len()).sum::<usize>(), 0, "{spec}");
            assert!(policy.spec.ingress.is_some() || policy.spec.egress.is_some());
        }
    }
}
