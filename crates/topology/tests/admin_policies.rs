//! AdminNetworkPolicies and the baseline one: what their rules mean.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};
use topology::identity::Name;
use topology::objects::{Action, AdminPolicyFacts, Protocol};
use topology::rules::{Compiled, Numbers, Others, of_admin_policy};

/// Every name of a port has these numbers.
struct Everywhere(Vec<u16>);

impl Numbers for Everywhere {
    fn numbers(&self, _: &Name, protocol: Protocol) -> Vec<u16> {
        if protocol == Protocol::Tcp { self.0.clone() } else { Vec::new() }
    }
}

fn compiled(spec: &Value) -> Option<Compiled> {
    let object = json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec});
    of_admin_policy(&AdminPolicyFacts::parse(&object.to_string()).unwrap(), &Everywhere(vec![80, 8080]))
}

#[test]
fn rules_keep_their_action_and_place() {
    let compiled = compiled(&json!({"priority": 5, "subject": {"namespaces": {"matchLabels": {"team": "blue"}}},
        "ingress": [
            {"action": "Pass", "from": [{"namespaces": {"matchLabels": {"team": "red"}}}]},
            {"action": "Deny", "from": [{"namespaces": {}}]}],
        "egress": [{"action": "Allow", "to": [{"nodes": {}}, {"networks": ["10.0.0.0/8"]}]}]}))
    .unwrap();
    assert_eq!(&*compiled.target, "ports in namespaces team=blue; pods *");
    let said: Vec<(&str, usize, Action)> =
        compiled.clauses.iter().map(|clause| (clause.field.as_str(), clause.place, clause.action)).collect();
    assert_eq!(
        said,
        [
            ("spec.ingress[0]", 0, Action::Pass),
            ("spec.ingress[1]", 1, Action::Deny),
            ("spec.egress[0]", 0, Action::Allow)
        ]
    );
    let Others::Those { sets, blocks } = &compiled.clauses[2].others else { panic!("everybody is meant") };
    assert_eq!((&*sets[0], blocks.len()), ("addresses in nodes *; pods *", 1));
}

#[test]
fn names_of_ports_are_those_of_the_end_that_is_reached() {
    let compiled = compiled(&json!({"priority": 5, "subject": {"namespaces": {}},
        "ingress": [{"action": "Deny", "from": [{"namespaces": {}}], "ports": [{"namedPort": "http"}]}],
        "egress": [{"action": "Deny", "to": [{"namespaces": {}}], "ports": [{"namedPort": "http"}]}]}))
    .unwrap();
    let said: Vec<(String, String)> = compiled
        .clauses
        .iter()
        .map(|clause| {
            let Others::Those { sets, .. } = &clause.others else { panic!("everybody is meant") };
            (clause.target.to_string(), sets[0].to_string())
        })
        .collect();
    let everywhere = "namespaces *; pods *";
    let ports = |port: &str| format!("ports in {everywhere}{port}");
    let addresses = |port: &str| format!("addresses in {everywhere}{port}");
    assert_eq!(
        said,
        [
            (ports("; port http/TCP=80"), addresses("")),
            (ports("; port http/TCP=8080"), addresses("")),
            (ports(""), addresses("; port http/TCP=80")),
            (ports(""), addresses("; port http/TCP=8080")),
        ]
    );
}

#[test]
fn what_was_never_understood_says_nothing() {
    assert_eq!(compiled(&json!({"priority": 5, "subject": {}})), None);
}
