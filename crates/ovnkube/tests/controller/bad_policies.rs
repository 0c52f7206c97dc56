//! Invalid NetworkPolicies: an Event names the field, the last valid version stays in effect, and all others keep
//! reconciling. The API server rejects most of them, so they are written to etcd directly.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, LONG_LEASE, node, until};
use crate::pod_mesh::{labelled_pod, policy};
use crate::policy_enforcement::{of_policy, put_unchecked};
use crate::rows::text;

fn acls(cluster: &Cluster, name: &str) -> BTreeSet<String> {
    let name = format!("default/{name}");
    let rows = cluster.raw("ACL").into_iter().filter(|row| of_policy(row, &name));
    rows.map(|row| format!("{} {} {}", text(&row["direction"]), text(&row["action"]), text(&row["match"]))).collect()
}

fn parked(cluster: &Cluster) -> f64 {
    cluster.metric("ovnkube_controller_parked_objects{kind=\"NetworkPolicy\"}")
}

fn cluster(purpose: &'static str) -> Cluster {
    let cluster = ClusterSpec::new(purpose).arguments(&LONG_LEASE).start();
    cluster.lead("c1");
    cluster.create(&[node("n1"), labelled_pod("default", "web", "n1", &json!({"app": "web"}), &json!([]))]);
    cluster.network_of("default", "web");
    cluster
}

/// Invalid specs, each with the field that the Event must name.
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
fn an_invalid_policy_names_the_field_and_keeps_its_acls() {
    let cluster = cluster("bad-policies");
    let good = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": 80}]}]});
    let cases = cases();
    let policies: Vec<Value> = cases.iter().map(|(name, _, _)| policy("default", name, &good)).collect();
    cluster.apply_all(&policies);
    for (name, _, _) in &cases {
        until(&format!("{name} is in effect"), || (acls(&cluster, name).len() == 3).then_some(()));
    }
    let before = acls(&cluster, "port");
    for (name, spec, _) in &cases {
        put_unchecked(&cluster, "default", name, spec);
    }
    for (name, _, field) in &cases {
        let message = cluster.event(name, "InvalidPolicy", &[field, "stays in effect"]);
        assert!(message.len() <= 1024, "{name}: {message}");
    }
    until("the parked policies are counted", || (parked(&cluster) == cases.len() as f64).then_some(()));
    for (name, _, _) in &cases {
        assert_eq!(acls(&cluster, name), before, "{name}");
    }
    // A policy created later takes effect.
    cluster.apply(&policy("default", "later", &good));
    until("later is in effect", || (acls(&cluster, "later") == before).then_some(()));
    // Corrected policies take effect without a restart.
    let closed = json!({"podSelector": {"matchLabels": {"app": "web"}}});
    for (name, _, _) in &cases {
        put_unchecked(&cluster, "default", name, &closed);
    }
    for (name, _, _) in &cases {
        until(&format!("{name} in its new version is in effect"), || (acls(&cluster, name).len() == 2).then_some(()));
    }
    until("no policy is parked", || (parked(&cluster) == 0.0).then_some(()));
}

/// An error in the last of a thousand rules keeps all of them.
#[test]
fn a_policy_of_a_thousand_rules_is_updated_atomically() {
    let cluster = cluster("thousand");
    let rule = |number: usize| {
        let block = format!("10.{}.{}.0/24", number / 250, number % 250);
        json!({"from": [{"ipBlock": {"cidr": block}}], "ports": [{"port": 1000 + number}]})
    };
    let spec = |count: usize| json!({"podSelector": {}, "ingress": (0..count).map(rule).collect::<Vec<_>>()});
    let all =
        |count: usize| until("all ACLs are written", || (acls(&cluster, "many").len() == count + 2).then_some(()));
    cluster.create(&[policy("default", "many", &spec(1000))]);
    all(1000);
    let (writer, made) = cluster.sequence();
    // One more rule is one transaction.
    put_unchecked(&cluster, "default", "many", &spec(1001));
    all(1001);
    assert_eq!(cluster.sequence(), (writer, made + 1));
    let before = acls(&cluster, "many");
    let mut wrong = spec(1001);
    wrong["ingress"][1000]["from"][0]["ipBlock"]["cidr"] = json!("nowhere");
    put_unchecked(&cluster, "default", "many", &wrong);
    cluster.event("many", "InvalidPolicy", &["spec.ingress[1000].from[0].ipBlock.cidr", "stays in effect"]);
    assert_eq!(acls(&cluster, "many"), before);
    cluster.lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    cluster.delete("networkpolicy", &["many"]);
    until("its ACLs are gone", || acls(&cluster, "many").is_empty().then_some(()));
}
