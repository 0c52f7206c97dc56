//! What we need to know of an AdminNetworkPolicy, and of the BaselineAdminNetworkPolicy.
//!
//! What is wrong by the API's own rules is wrong here too, also where an older server let it pass. Nothing of a policy that
//! was never understood is in force, as the API says: half of one could allow what its other half forbids.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::annotation::shortened;
use super::labels::LabelSelector;
use super::rule::{Action, Peer, PortRule, Ports, Rule, port_name, prefix, protocol};
use super::{Metadata, Protocol, field};
use crate::{Name, ObjectKey};

/// The only name that the BaselineAdminNetworkPolicy may have.
pub const BASELINE_NAME: &str = "default";
/// The condition that says whether a policy is in force.
pub const READY: &str = "Ready-In-Zone-global";
/// Priorities go from 0, which is asked first, to this one.
pub const LAST_PRIORITY: u16 = 1000;
/// So many rules a policy has for each direction at most, and a rule so many peers and ports.
const MOST: usize = 100;
/// So many networks one peer has at most.
const MOST_NETWORKS: usize = 25;

/// What we need to know of an AdminNetworkPolicy or of the BaselineAdminNetworkPolicy. Its key has no namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminPolicyFacts {
    /// Its name.
    pub key: Arc<ObjectKey>,
    /// Its identity.
    pub uid: Name,
    /// When it was created.
    pub created: Box<str>,
    /// Which version of its spec this is.
    pub generation: i64,
    /// What it says. If it cannot be understood, what it said last; none if it was never understood.
    pub spec: Option<Arc<AdminPolicySpec>>,
    /// Why it cannot be understood, by the field.
    pub broken: Option<Box<str>>,
    /// Whether `spec` is what it said before it was broken.
    pub last_good: bool,
    /// What the object's status says of it so far.
    pub condition: Option<Condition>,
}

/// What an AdminNetworkPolicy or the BaselineAdminNetworkPolicy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminPolicySpec {
    /// Which policy is asked first: the one with the lowest number. Always 0 of the baseline.
    pub priority: u16,
    /// Whom it is about: pods of these namespaces.
    pub namespaces: LabelSelector,
    /// Which of their pods.
    pub pods: LabelSelector,
    /// What comes to them: of rules that match, the first decides.
    pub ingress: Box<[Rule]>,
    /// What goes from them.
    pub egress: Box<[Rule]>,
}

/// The condition [`READY`] of a policy's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether it is in force as it says.
    pub ready: bool,
    /// In one word.
    pub reason: Box<str>,
    /// What a person reads.
    pub message: Box<str>,
    /// Of which version of the spec.
    pub generation: i64,
    /// Since when it is, or is not; as long as nobody has written it, empty.
    pub since: Box<str>,
}

impl Condition {
    /// Whether both say the same, since whenever.
    pub fn says(&self, other: &Self) -> bool {
        let words = |one: &Self| (one.ready, one.reason.clone(), one.message.clone(), one.generation);
        words(self) == words(other)
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
    /// Reads an AdminNetworkPolicy's JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        Self::parse_as(json, false)
    }

    /// Reads the JSON of the BaselineAdminNetworkPolicy.
    pub fn parse_baseline(json: &str) -> Result<Self, String> {
        Self::parse_as(json, true)
    }

    fn parse_as(json: &str, baseline: bool) -> Result<Self, String> {
        let Object { metadata, spec, status } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        metadata.check(if baseline { "BaselineAdminNetworkPolicy" } else { "AdminNetworkPolicy" })?;
        let read = match baseline && metadata.name != BASELINE_NAME {
            true => Err(format!(
                "metadata.name: a BaselineAdminNetworkPolicy must be called {BASELINE_NAME}, of which there is one"
            )),
            false => read(&spec, baseline),
        };
        Ok(Self {
            key: Arc::new(ObjectKey::new("", &metadata.name)),
            uid: metadata.uid.as_ref().into(),
            created: metadata.created(),
            generation: metadata.generation,
            broken: read.as_ref().err().map(|why| why.as_str().into()),
            spec: read.ok().map(Arc::new),
            last_good: false,
            condition: condition(&status),
        })
    }

    /// Whether what it says, now or before, is known.
    pub fn is_understood(&self) -> bool {
        self.spec.is_some()
    }

    /// Its place among all: the lowest priority first, and of equal ones the oldest. None if it was never understood.
    pub fn rank(&self) -> Option<(u16, &str, &str)> {
        self.spec.as_ref().map(|spec| (spec.priority, &*self.created, &*self.key.name))
    }

    /// The same policy said something before: that stays in force as long as what it says now cannot be understood.
    pub fn keep_good_of(&mut self, before: &Self) {
        if self.broken.is_some() && self.uid == before.uid && before.spec.is_some() {
            self.spec = before.spec.clone();
            self.last_good = true;
        }
    }
}

/// What a status says in the condition that is ours.
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
    priority.ok_or_else(|| format!("spec.priority: {number} is no priority (0 to {LAST_PRIORITY})"))
}

/// The one field that is set of those that can be.
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

/// A list of at most so many.
fn limited<'a>(value: &'a Value, key: &str, path: &str, most: usize) -> Result<&'a [Value], String> {
    let list = field::list(value, key, path)?;
    if list.len() > most {
        return Err(format!("{path}.{key}: {} are too many (at most {most})", list.len()));
    }
    Ok(list)
}

fn rules(spec: &Value, direction: &str, whom: &str, baseline: bool) -> Result<Box<[Rule]>, String> {
    let rules = limited(spec, direction, "spec", MOST)?.iter().enumerate();
    rules.map(|(place, value)| rule(value, &format!("spec.{direction}[{place}]"), whom, baseline)).collect()
}

fn rule(value: &Value, path: &str, whom: &str, baseline: bool) -> Result<Rule, String> {
    field::only(value, &["name", "action", "ports", whom], path)?;
    let name = field::get(value, "name").map(|name| field::text(name, &format!("{path}.name"))).transpose()?;
    if name.is_some_and(|name| name.chars().count() > MOST) {
        return Err(format!("{path}.name: longer than {MOST} characters"));
    }
    let action = match (field::required_text(value, "action", path)?, baseline) {
        ("Allow", _) => Action::Allow,
        ("Deny", _) => Action::Deny,
        ("Pass", false) => Action::Pass,
        (other, false) => return Err(format!("{path}.action: {} is none of Allow, Deny, Pass", shortened(other))),
        (other, true) => return Err(format!("{path}.action: {} is neither Allow nor Deny", shortened(other))),
    };
    let mut peers = Vec::new();
    for (place, value) in limited(value, whom, path, MOST)?.iter().enumerate() {
        add_peer(&mut peers, value, &format!("{path}.{whom}[{place}]"), whom == "to")?;
    }
    if peers.is_empty() {
        return Err(format!("{path}.{whom}: needs at least one peer"));
    }
    let mut ports = Vec::new();
    for (place, value) in limited(value, "ports", path, MOST)?.iter().enumerate() {
        let path = format!("{path}.ports[{place}]");
        add_port(&mut ports, value, &path)?;
        let named = matches!(ports.last(), Some(PortRule { ports: Ports::Named(_), .. }));
        if named && peers.iter().any(|peer| matches!(peer, Peer::Nodes(_) | Peer::Block { .. })) {
            return Err(format!("{path}.namedPort: nodes and networks have no names for ports"));
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
            for (place, value) in list.iter().enumerate() {
                let path = format!("{path}[{place}]");
                let text = field::text(value, &path)?;
                if text.contains(':') && text.contains('.') {
                    return Err(format!("{path}: {} must be of IPv4 or of IPv6, not of both", shortened(text)));
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
            // The protocol is that of the port of this name.
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

    fn everyone() -> Value {
        json!({"namespaces": {}})
    }

    #[test]
    fn policies_are_read() {
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
        // A name is of any protocol.
        assert_eq!(spec.egress[0].ports.len(), 4);
        assert_eq!(spec.egress[1].peers.as_ref().unwrap().len(), 3);
        assert_eq!(spec.egress[1].ports[0], PortRule { protocol: Protocol::Tcp, ports: Ports::Range(1, 100) });
    }

    #[test]
    fn what_cannot_be_is_named_and_not_in_force() {
        let rule = |rule: Value| json!({"priority": 1, "subject": everyone(), "egress": [rule]});
        let with = |key: &str, value: Value| {
            let mut good = json!({"action": "Deny", "to": [{"namespaces": {}}]});
            good[key] = value;
            rule(good)
        };
        let many = |number: usize| vec![json!({"action": "Deny", "to": [{"namespaces": {}}]}); number];
        for (spec, field) in [
            (json!(7), "spec: "),
            (json!({"subject": everyone()}), "spec.priority: "),
            (json!({"priority": 1001, "subject": everyone()}), "spec.priority: "),
            (json!({"priority": -1, "subject": everyone()}), "spec.priority: "),
            (json!({"priority": 1}), "spec.subject: "),
            (json!({"priority": 1, "subject": {}}), "spec.subject: "),
            (json!({"priority": 1, "subject": {"namespaces": {}, "pods": {}}}), "spec.subject: "),
            (json!({"priority": 1, "subject": {"pods": {"podSelector": {}}}}), "spec.subject.pods.namespaceSelector: "),
            (json!({"priority": 1, "subject": everyone(), "rules": []}), "spec.rules: "),
            (json!({"priority": 1, "subject": everyone(), "egress": many(101)}), "spec.egress: "),
            (
                json!({"priority": 1, "subject": everyone(), "ingress": [{"action": "Deny", "from": [{"nodes": {}}]}]}),
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
    fn the_baseline_has_one_name_and_passes_nothing_on() {
        let read = |name: &str, action: &str| {
            let spec = json!({"subject": everyone(), "ingress": [{"action": action, "from": [{"namespaces": {}}]}]});
            AdminPolicyFacts::parse_baseline(&object(name, spec)).unwrap().broken.unwrap_or_default()
        };
        assert_eq!(&*read("default", "Allow"), "");
        assert!(read("default", "Pass").starts_with("spec.ingress[0].action: "));
        assert!(read("another", "Allow").starts_with("metadata.name: "));
    }

    #[test]
    fn what_it_said_before_stays() {
        let good = policy(json!({"priority": 5, "subject": everyone()}));
        let mut bad = policy(json!({"priority": 5000, "subject": everyone()}));
        bad.keep_good_of(&good);
        assert!(bad.last_good && bad.broken.is_some());
        assert_eq!(bad.spec, good.spec);
        let mut another = policy(json!({"priority": 5000, "subject": everyone()}));
        another.uid = "v".into();
        another.keep_good_of(&good);
        assert_eq!(another.spec, None);
    }

    #[test]
    fn the_condition_that_is_ours_is_read() {
        let condition = |conditions: Value| {
            let object = json!({"metadata": {"name": "p", "uid": "u"}, "status": {"conditions": conditions}});
            AdminPolicyFacts::parse(&object.to_string()).unwrap().condition
        };
        assert_eq!(condition(json!([{"type": "Another", "status": "True"}])), None);
        let ours = json!({"type": READY, "status": "False", "reason": "r", "message": "m", "observedGeneration": 2,
            "lastTransitionTime": "t"});
        let (reason, message, since) = ("r".into(), "m".into(), "t".into());
        let said = Condition { ready: false, reason, message, generation: 2, since };
        assert_eq!(condition(json!([{"type": "Another"}, ours])), Some(said));
    }
}
