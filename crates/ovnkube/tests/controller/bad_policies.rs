//! Policies that cannot be: whoever made one is told which field is wrong, what it said before stays in force, and the rest
//! goes on. The API server refuses most of them, so they are put into etcd behind its back.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cluster::{Cluster, LONG_LEASE, Wish, node, until};
use crate::crowd::{labelled_pod, policy};
use crate::lessons_policies::{of_policy, put_unchecked};
use crate::rows::text;

/// The rules of a policy.
fn rules(cluster: &Cluster, name: &str) -> BTreeSet<String> {
    let name = format!("default/{name}");
    let rows = cluster.raw("ACL").into_iter().filter(|row| of_policy(row, &name));
    rows.map(|row| format!("{} {} {}", text(&row["direction"]), text(&row["action"]), text(&row["match"]))).collect()
}

fn parked(cluster: &Cluster) -> f64 {
    cluster.metric("ovnkube_controller_parked_objects{kind=\"NetworkPolicy\"}")
}

fn cluster(purpose: &'static str) -> Cluster {
    let cluster = Wish::new(purpose).arguments(&LONG_LEASE).start();
    cluster.lead("c1");
    cluster.create(&[node("n1"), labelled_pod("default", "web", "n1", &json!({"app": "web"}), &json!([]))]);
    cluster.network_of("default", "web");
    cluster
}

/// A specification that allows somebody in, with something in it that is not as it should be.
fn cases() -> Vec<(&'static str, Value, &'static str)> {
    let from = |peer: Value| json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}, peer]}]});
    let ports = |port: Value| json!({"podSelector": {}, "ingress": [{}, {"ports": [{"port": 80}, port]}]});
    let egress =
        |block: Value| json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": block}]}]});
    let words = |operator: &str, values: Value| json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}});
    vec![
        ("port", ports(json!({"port": 70000})), "spec.ingress[1].ports[1].port: 70000"),
        ("port-zero", ports(json!({"port": 0})), "spec.ingress[1].ports[1].port: 0"),
        ("range", ports(json!({"port": 9, "endPort": 8})), "spec.ingress[1].ports[1].endPort: 8"),
        ("range-of-name", ports(json!({"port": "http", "endPort": 8})), "spec.ingress[1].ports[1].endPort"),
        ("range-of-none", ports(json!({"endPort": 8})), "spec.ingress[1].ports[1].endPort"),
        ("protocol", ports(json!({"protocol": "ICMP"})), "spec.ingress[1].ports[1].protocol"),
        ("port-name", ports(json!({"port": "NOT A NAME"})), "spec.ingress[1].ports[1].port"),
        ("network", from(json!({"ipBlock": {"cidr": "10.0.0.0/99"}})), "spec.ingress[0].from[1].ipBlock.cidr"),
        (
            "exception",
            egress(json!({"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "11.0.0.0/16"]})),
            "spec.egress[0].to[0].ipBlock.except[1]",
        ),
        (
            "exception-family",
            egress(json!({"cidr": "10.0.0.0/8", "except": ["fd00::/8"]})),
            "spec.egress[0].to[0].ipBlock.except[0]",
        ),
        (
            "peer-of-both",
            from(json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}})),
            "spec.ingress[0].from[1].ipBlock",
        ),
        ("peer-of-none", from(json!({})), "spec.ingress[0].from[1]"),
        ("direction", json!({"podSelector": {}, "policyTypes": ["Sideways"]}), "spec.policyTypes[0]"),
        ("operator", words("Like", json!(["web"])), "spec.podSelector.matchExpressions[0].operator"),
        ("values", words("Exists", json!(["web"])), "spec.podSelector.matchExpressions[0].values"),
        ("no-values", words("In", json!([])), "spec.podSelector.matchExpressions[0].values"),
    ]
}

#[test]
fn policies_that_cannot_be_name_the_field_and_keep_what_was_good() {
    let cluster = cluster("bad-policies");
    let good = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": 80}]}]});
    let cases = cases();
    let policies: Vec<Value> = cases.iter().map(|(name, _, _)| policy("default", name, &good)).collect();
    cluster.apply_all(&policies);
    for (name, _, _) in &cases {
        until(&format!("{name} is in force"), || (rules(&cluster, name).len() == 3).then_some(()));
    }
    let before = rules(&cluster, "port");
    for (name, spec, _) in &cases {
        put_unchecked(&cluster, "default", name, spec);
    }
    for (name, _, field) in &cases {
        let message = cluster.event(name, "InvalidPolicy", &[field, "stays in force"]);
        assert!(message.len() <= 1024, "{name}: {message}");
    }
    until("they are counted", || (parked(&cluster) == cases.len() as f64).then_some(()));
    for (name, _, _) in &cases {
        assert_eq!(rules(&cluster, name), before, "{name}");
    }
    // Who comes later is served.
    cluster.apply(&policy("default", "later", &good));
    until("later is in force", || (rules(&cluster, "later") == before).then_some(()));
    // When the mistake is gone, everything is well without a restart.
    let closed = json!({"podSelector": {"matchLabels": {"app": "web"}}});
    for (name, _, _) in &cases {
        put_unchecked(&cluster, "default", name, &closed);
    }
    for (name, _, _) in &cases {
        until(&format!("{name} is in force as it is now"), || (rules(&cluster, name).len() == 2).then_some(()));
    }
    until("nobody is parked", || (parked(&cluster) == 0.0).then_some(()));
}

/// A policy of a thousand rules comes whole or not at all, and a mistake in its last rule costs none of them.
#[test]
fn a_policy_of_a_thousand_rules() {
    let cluster = cluster("thousand");
    let rule = |number: usize| {
        let block = format!("10.{}.{}.0/24", number / 250, number % 250);
        json!({"from": [{"ipBlock": {"cidr": block}}], "ports": [{"port": 1000 + number}]})
    };
    let spec = |count: usize| json!({"podSelector": {}, "ingress": (0..count).map(rule).collect::<Vec<_>>()});
    let all =
        |count: usize| until("all its rules are there", || (rules(&cluster, "many").len() == count + 2).then_some(()));
    cluster.create(&[policy("default", "many", &spec(1000))]);
    all(1000);
    let (writer, made) = cluster.sequence();
    // A rule more is a rule more, in one transaction.
    put_unchecked(&cluster, "default", "many", &spec(1001));
    all(1001);
    assert_eq!(cluster.sequence(), (writer, made + 1));
    let before = rules(&cluster, "many");
    let mut wrong = spec(1001);
    wrong["ingress"][1000]["from"][0]["ipBlock"]["cidr"] = json!("nowhere");
    put_unchecked(&cluster, "default", "many", &wrong);
    cluster.event("many", "InvalidPolicy", &["spec.ingress[1000].from[0].ipBlock.cidr", "stays in force"]);
    assert_eq!(rules(&cluster, "many"), before);
    cluster.lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    cluster.delete("networkpolicy", &["many"]);
    until("it is gone", || rules(&cluster, "many").is_empty().then_some(()));
}
