//! AdminNetworkPolicies and the BaselineAdminNetworkPolicy.
//!
//! The API's validation rules are applied again: an older server may not have them. Nothing of a policy that was never valid
//! is in effect, as the API says: one half could allow what the other half denies.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::annotation::shortened;
use super::labels::LabelSelector;
use super::rule::{Action, Peer, PortRule, Ports, Rule, port_name, prefix, protocol};
use super::{Metadata, Protocol, field};
use crate::{Name, ObjectKey};

/// The only valid name of a BaselineAdminNetworkPolicy.
pub const BASELINE_NAME: &str = "default";
/// The status condition of a policy that is in effect.
pub const READY: &str = "Ready-In-Zone-global";
/// Priorities go from 0, the highest, to this one.
pub const LAST_PRIORITY: u16 = 1000;
/// Limit of rules per direction, of peers and ports per rule, and of characters of a rule's name.
const MOST: usize = 100;
/// Limit of networks per peer.
const MOST_NETWORKS: usize = 25;

/// An AdminNetworkPolicy or BaselineAdminNetworkPolicy. Its key has no namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminPolicyFacts {
    /// Unique among objects of its kind at one time.
    pub key: Arc<ObjectKey>,
    /// Tells objects apart that had the same name one after the other.
    pub uid: Name,
    /// `creationTimestamp`; compares as time does.
    pub created: Box<str>,
    /// `metadata.generation`, the version of the spec.
    pub generation: i64,
    /// If invalid: the last valid spec, or None.
    pub spec: Option<Arc<AdminPolicySpec>>,
    /// The first invalid field, and why.
    pub broken: Option<Box<str>>,
    /// Whether `spec` is that of an earlier version, because this one is invalid.
    pub last_valid: bool,
    /// As the object's status has it.
    pub condition: Option<Condition>,
}

/// The spec of an AdminNetworkPolicy or BaselineAdminNetworkPolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminPolicySpec {
    /// Lower numbers are evaluated first. 0 for the baseline.
    pub priority: u16,
    /// Subject: pods of these namespaces.
    pub namespaces: LabelSelector,
    /// Of the pods in these namespaces, those with matching labels.
    pub pods: LabelSelector,
    /// The first rule that matches decides.
    pub ingress: Box<[Rule]>,
    /// The first rule that matches decides.
    pub egress: Box<[Rule]>,
}

/// The condition [`READY`] of a policy's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether this version is in effect.
    pub ready: bool,
    /// CamelCase, for programs.
    pub reason: Box<str>,
    /// Explanation for users, with the remedy.
    pub message: Box<str>,
    /// The version of the spec that it is about.
    pub generation: i64,
    /// `lastTransitionTime`; empty until written.
    pub since: Box<str>,
}

impl Condition {
    /// Whether everything but the transition time is equal.
    pub fn has_content_of(&self, other: &Self) -> bool {
        let content = |one: &Self| (one.ready, one.reason.clone(), one.message.clone(), one.generation);
        content(self) == content(other)
    }
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl AdminPolicyFacts {
    /// Parses the JSON of an AdminNetworkPolicy.
    pub fn parse(json: &str) -> Result<Self, String> {
        Self::parse_as(json, false)
    }

    /// Parses the JSON of a BaselineAdminNetworkPolicy.
    pub fn parse_baseline(json: &str) -> Result<Self, String> {
        Self::parse_as(json, true)
    }

    fn parse_as(json: &str, baseline: bool) -> Result<Self, String> {
        let Object { metadata, spec, status } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        metadata.check(if baseline { "BaselineAdminNetworkPolicy" } else { "AdminNetworkPolicy" })?;
        let read = match baseline && metadata.name != BASELINE_NAME {
            true => Err(format!("metadata.name: a BaselineAdminNetworkPolicy must be named {BASELINE_NAME}")),
            false => read(&spec, baseline),
        };
        Ok(Self {
            key: Arc::new(ObjectKey::new("", &metadata.name)),
            uid: metadata.uid.as_ref().into(),
            created: metadata.created(),
            generation: metadata.generation,
            broken: read.as_ref().err().map(|why| why.as_str().into()),
            spec: read.ok().map(Arc::new),
            last_valid: false,
            condition: condition(&status),
        })
    }

    /// Whether there is a valid spec, of this version or an earlier one.
    pub fn is_understood(&self) -> bool {
        self.spec.is_some()
    }

    /// Sorts policies by evaluation order: by priority, then the oldest. None if it was never valid.
    pub fn rank(&self) -> Option<(u16, &str, &str)> {
        self.spec.as_ref().map(|spec| (spec.priority, &*self.created, &*self.key.name))
    }

    /// If this version is invalid, takes the spec of the last valid version of the same policy.
    pub fn keep_last_valid(&mut self, before: &Self) {
        if self.broken.is_some() && self.uid == before.uid && before.spec.is_some() {
            self.spec = before.spec.clone();
            self.last_valid = true;
        }
    }
}

/// The condition [`READY`] of a status.
fn condition(status: &Value) -> Option<Condition> {
    let conditions = status.get("conditions")?.as_array()?;
    let ours = conditions.iter().find(|condition| condition.get("type").and_then(Value::as_str) == Some(READY))?;
    let text = |key: &str| ours.get(key).and_then(Value::as_str).unwrap_or_default();
    Some(Condition {
        ready: text("status") == "True",
        reason: text("reason").into(),
        message: text("message").into(),
        generation: ours.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default(),
        since: text("lastTransitionTime").into(),
    })
}

fn read(spec: &Value, baseline: bool) -> Result<AdminPolicySpec, String> {
    let known: &[&str] =
        if baseline { &["subject", "ingress", "egress"] } else { &["priority", "subject", "ingress", "egress"] };
    field::only(spec, known, "spec")?;
    let priority = if baseline { 0 } else { priority(spec)? };
    let subject = field::get(spec, "subject").ok_or("spec.subject: missing")?;
    let (namespaces, pods) = match one_of(subject, &["namespaces", "pods"], "spec.subject")? {
        ("namespaces", value) => (LabelSelector::read(value, "spec.subject.namespaces")?, LabelSelector::default()),
        (_, value) => pods_of_namespaces(value, "spec.subject.pods")?,
    };
    let ingress = rules(spec, "ingress", "from", baseline)?;
    let egress = rules(spec, "egress", "to", baseline)?;
    Ok(AdminPolicySpec { priority, namespaces, pods, ingress, egress })
}

fn priority(spec: &Value) -> Result<u16, String> {
    let value = field::get(spec, "priority").ok_or("spec.priority: missing")?;
    let number = value.as_i64().ok_or("spec.priority: not a number")?;
    let priority = u16::try_from(number).ok().filter(|priority| *priority <= LAST_PRIORITY);
    priority.ok_or_else(|| format!("spec.priority: {number} is not a priority (0 to {LAST_PRIORITY})"))
}

/// The only field that is set; an error if none or several are.
fn one_of<'a>(
    value: &'a Value,
    known: &'static [&'static str],
    path: &str,
) -> Result<(&'static str, &'a Value), String> {
    field::only(value, known, path)?;
    let mut set = known.iter().filter_map(|key| Some((*key, field::get(value, key)?)));
    match (set.next(), set.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(format!("{path}: needs exactly one of {}", known.join(", "))),
    }
}

fn pods_of_namespaces(value: &Value, path: &str) -> Result<(LabelSelector, LabelSelector), String> {
    field::only(value, &["namespaceSelector", "podSelector"], path)?;
    let selector = |key: &str| {
        let path = format!("{path}.{key}");
        LabelSelector::read(field::get(value, key).ok_or_else(|| format!("{path}: missing"))?, &path)
    };
    Ok((selector("namespaceSelector")?, selector("podSelector")?))
}

/// A list with at most `most` items.
fn limited<'a>(value: &'a Value, key: &str, path: &str, most: usize) -> Result<&'a [Value], String> {
    let list = field::list(value, key, path)?;
    if list.len() > most {
        return Err(format!("{path}.{key}: {} are too many (at most {most})", list.len()));
    }
    Ok(list)
}

fn rules(spec: &Value, direction: &str, peers_field: &str, baseline: bool) -> Result<Box<[Rule]>, String> {
    let rules = limited(spec, direction, "spec", MOST)?.iter().enumerate();
    rules.map(|(index, value)| rule(value, &format!("spec.{direction}[{index}]"), peers_field, baseline)).collect()
}

fn rule(value: &Value, path: &str, peers_field: &str, baseline: bool) -> Result<Rule, String> {
    field::only(value, &["name", "action", "ports", peers_field], path)?;
    let name = field::get(value, "name").map(|name| field::text(name, &format!("{path}.name"))).transpose()?;
    if name.is_some_and(|name| name.chars().count() > MOST) {
        return Err(format!("{path}.name: longer than {MOST} characters"));
    }
    let action = match (field::required_text(value, "action", path)?, baseline) {
        ("Allow", _) => Action::Allow,
        ("Deny", _) => Action::Deny,
        ("Pass", false) => Action::Pass,
        (other, false) => return Err(format!("{path}.action: {} is not one of Allow, Deny, Pass", shortened(other))),
        (other, true) => return Err(format!("{path}.action: {} is neither Allow nor Deny", shortened(other))),
    };
    let mut peers = Vec::new();
    for (index, value) in limited(value, peers_field, path, MOST)?.iter().enumerate() {
        add_peer(&mut peers, value, &format!("{path}.{peers_field}[{index}]"), peers_field == "to")?;
    }
    if peers.is_empty() {
        return Err(format!("{path}.{peers_field}: needs at least one peer"));
    }
    let mut ports = Vec::new();
    for (index, value) in limited(value, "ports", path, MOST)?.iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        add_port(&mut ports, value, &path)?;
        let named = matches!(ports.last(), Some(PortRule { ports: Ports::Named(_), .. }));
        if named && peers.iter().any(|peer| matches!(peer, Peer::Nodes(_) | Peer::Block { .. })) {
            return Err(format!("{path}.namedPort: nodes and networks have no named ports"));
        }
    }
    Ok(Rule { action, name: name.map(Name::from), peers: Some(peers.into()), ports: ports.into() })
}

fn add_peer(peers: &mut Vec<Peer>, value: &Value, path: &str, egress: bool) -> Result<(), String> {
    let known: &[&str] = if egress { &["namespaces", "pods", "nodes", "networks"] } else { &["namespaces", "pods"] };
    let (kind, value) = one_of(value, known, path)?;
    let path = format!("{path}.{kind}");
    match kind {
        "namespaces" => {
            let namespaces = Some(LabelSelector::read(value, &path)?);
            peers.push(Peer::Pods { namespaces, pods: LabelSelector::default() });
        }
        "pods" => {
            let (namespaces, pods) = pods_of_namespaces(value, &path)?;
            peers.push(Peer::Pods { namespaces: Some(namespaces), pods });
        }
        "nodes" => peers.push(Peer::Nodes(LabelSelector::read(value, &path)?)),
        _ => {
            let list = value.as_array().ok_or_else(|| format!("{path}: not a list"))?;
            if list.is_empty() || list.len() > MOST_NETWORKS {
                return Err(format!("{path}: needs 1 to {MOST_NETWORKS} networks, not {}", list.len()));
            }
            for (index, value) in list.iter().enumerate() {
                let path = format!("{path}[{index}]");
                let text = field::text(value, &path)?;
                if text.contains(':') && text.contains('.') {
                    return Err(format!("{path}: {} mixes IPv4 and IPv6", shortened(text)));
                }
                let cidr = prefix(text, &path)?;
                peers.push(Peer::Block { cidr, except: Box::default() });
            }
        }
    }
    Ok(())
}

fn add_port(ports: &mut Vec<PortRule>, value: &Value, path: &str) -> Result<(), String> {
    let (kind, value) = one_of(value, &["portNumber", "portRange", "namedPort"], path)?;
    let path = format!("{path}.{kind}");
    let number = |key: &str| {
        let path = format!("{path}.{key}");
        field::port(field::get(value, key).ok_or_else(|| format!("{path}: missing"))?, &path)
    };
    match kind {
        "portNumber" => {
            field::only(value, &["protocol", "port"], &path)?;
            let port = number("port")?;
            ports.push(PortRule { protocol: protocol(value, &path)?, ports: Ports::Range(port, port) });
        }
        "portRange" => {
            field::only(value, &["protocol", "start", "end"], &path)?;
            let (start, end) = (number("start")?, number("end")?);
            if end <= start {
                return Err(format!("{path}.end: {end} is not above the start {start}"));
            }
            ports.push(PortRule { protocol: protocol(value, &path)?, ports: Ports::Range(start, end) });
        }
        _ => {
            // The containers' port of this name determines the protocol.
            let name = port_name(field::text(value, &path)?, &path)?;
            let named = |protocol| PortRule { protocol, ports: Ports::Named(name.clone()) };
            ports.extend(Protocol::ALL.map(named));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, spec: Value) -> String {
        json!({"metadata": {"name": name, "uid": "u", "generation": 3}, "spec": spec}).to_string()
    }

    fn policy(spec: Value) -> AdminPolicyFacts {
        AdminPolicyFacts::parse(&object("p", spec)).unwrap()
    }

    fn all_pods() -> Value {
        json!({"namespaces": {}})
    }

    #[test]
    fn policies_are_parsed() {
        let policy = policy(json!({"priority": 5,
            "subject": {"pods": {"namespaceSelector": {"matchLabels": {"team": "blue"}}, "podSelector": {}}},
            "ingress": [{"name": "from-red", "action": "Pass", "from": [{"namespaces": {"matchLabels": {"team": "red"}}}]}],
            "egress": [
                {"action": "Allow", "to": [{"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}}],
                 "ports": [{"portNumber": {"protocol": "UDP", "port": 53}}, {"namedPort": "http"}]},
                {"action": "Deny", "to": [{"nodes": {}}, {"networks": ["10.0.0.0/8", "fd00::/8"]}],
                 "ports": [{"portRange": {"start": 1, "end": 100}}]}]}));
        assert_eq!(policy.broken, None);
        assert_eq!((policy.rank(), policy.generation), (Some((5, "", "p")), 3));
        let spec = policy.spec.unwrap();
        assert_eq!((spec.namespaces.to_string(), spec.pods.to_string()), ("team=blue".into(), "*".into()));
        assert_eq!((spec.ingress[0].action, spec.ingress[0].name.as_deref()), (Action::Pass, Some("from-red")));
        // A named port becomes one rule per protocol.
        assert_eq!(spec.egress[0].ports.len(), 4);
        assert_eq!(spec.egress[1].peers.as_ref().unwrap().len(), 3);
        assert_eq!(spec.egress[1].ports[0], PortRule { protocol: Protocol::Tcp, ports: Ports::Range(1, 100) });
    }

    #[test]
    fn invalid_policies_name_the_field_and_have_no_spec() {
        let rule = |rule: Value| json!({"priority": 1, "subject": all_pods(), "egress": [rule]});
        let with = |key: &str, value: Value| {
            let mut good = json!({"action": "Deny", "to": [{"namespaces": {}}]});
            good[key] = value;
            rule(good)
        };
        let many = |number: usize| vec![json!({"action": "Deny", "to": [{"namespaces": {}}]}); number];
        for (spec, field) in [
            (json!(7), "spec: "),
            (json!({"subject": all_pods()}), "spec.priority: "),
            (json!({"priority": 1001, "subject": all_pods()}), "spec.priority: "),
            (json!({"priority": -1, "subject": all_pods()}), "spec.priority: "),
            (json!({"priority": 1}), "spec.subject: "),
            (json!({"priority": 1, "subject": {}}), "spec.subject: "),
            (json!({"priority": 1, "subject": {"namespaces": {}, "pods": {}}}), "spec.subject: "),
            (json!({"priority": 1, "subject": {"pods": {"podSelector": {}}}}), "spec.subject.pods.namespaceSelector: "),
            (json!({"priority": 1, "subject": all_pods(), "rules": []}), "spec.rules: "),
            (json!({"priority": 1, "subject": all_pods(), "egress": many(101)}), "spec.egress: "),
            (
                json!({"priority": 1, "subject": all_pods(), "ingress": [{"action": "Deny", "from": [{"nodes": {}}]}]}),
                "spec.ingress[0].from[0].nodes: ",
            ),
            (rule(json!({"to": [{"namespaces": {}}]})), "spec.egress[0].action: "),
            (with("action", json!("Reject")), "spec.egress[0].action: "),
            (with("to", json!([])), "spec.egress[0].to: "),
            (with("to", json!([{}])), "spec.egress[0].to[0]: "),
            (with("to", json!([{"pods": {"namespaceSelector": {}}}])), "spec.egress[0].to[0].pods.podSelector: "),
            (with("to", json!([{"networks": []}])), "spec.egress[0].to[0].networks: "),
            (with("to", json!([{"networks": ["10.0.0.0/8", "x"]}])), "spec.egress[0].to[0].networks[1]: "),
            (with("to", json!([{"networks": ["::ffff:10.0.0.0/104"]}])), "spec.egress[0].to[0].networks[0]: "),
            (with("name", json!("x".repeat(101))), "spec.egress[0].name: "),
            (with("ports", json!([{}])), "spec.egress[0].ports[0]: "),
            (with("ports", json!([{"portNumber": {"port": 0}}])), "spec.egress[0].ports[0].portNumber.port: "),
            (with("ports", json!([{"portRange": {"start": 9, "end": 9}}])), "spec.egress[0].ports[0].portRange.end: "),
            (with("ports", json!([{"namedPort": "NOT A NAME"}])), "spec.egress[0].ports[0].namedPort: "),
            (
                rule(json!({"action": "Deny", "to": [{"nodes": {}}], "ports": [{"namedPort": "http"}]})),
                "spec.egress[0].ports[0].namedPort: ",
            ),
        ] {
            let policy = policy(spec.clone());
            let why = policy.broken.unwrap_or_default();
            assert!(why.starts_with(field), "{spec}: {why}");
            assert_eq!(policy.spec, None, "{spec}");
        }
    }

    #[test]
    fn the_baseline_has_one_name_and_no_pass_action() {
        let read = |name: &str, action: &str| {
            let spec = json!({"subject": all_pods(), "ingress": [{"action": action, "from": [{"namespaces": {}}]}]});
            AdminPolicyFacts::parse_baseline(&object(name, spec)).unwrap().broken.unwrap_or_default()
        };
        assert_eq!(&*read("default", "Allow"), "");
        assert!(read("default", "Pass").starts_with("spec.ingress[0].action: "));
        assert!(read("another", "Allow").starts_with("metadata.name: "));
    }

    #[test]
    fn the_last_valid_spec_of_the_same_policy_is_kept() {
        let good = policy(json!({"priority": 5, "subject": all_pods()}));
        let mut bad = policy(json!({"priority": 5000, "subject": all_pods()}));
        bad.keep_last_valid(&good);
        assert!(bad.last_valid && bad.broken.is_some());
        assert_eq!(bad.spec, good.spec);
        let mut another = policy(json!({"priority": 5000, "subject": all_pods()}));
        another.uid = "v".into();
        another.keep_last_valid(&good);
        assert_eq!(another.spec, None);
    }

    #[test]
    fn only_our_condition_is_parsed() {
        let condition = |conditions: Value| {
            let object = json!({"metadata": {"name": "p", "uid": "u"}, "status": {"conditions": conditions}});
            AdminPolicyFacts::parse(&object.to_string()).unwrap().condition
        };
        assert_eq!(condition(json!([{"type": "Another", "status": "True"}])), None);
        let ours = json!({"type": READY, "status": "False", "reason": "r", "message": "m", "observedGeneration": 2,
            "lastTransitionTime": "t"});
        let (reason, message, since) = ("r".into(), "m".into(), "t".into());
        let expected = Condition { ready: false, reason, message, generation: 2, since };
        assert_eq!(condition(json!([{"type": "Another"}, ours])), Some(expected));
    }
}
