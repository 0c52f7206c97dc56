//! Policies of all tiers by packets: all connections of a crowd are tried under each of these policies, and come about where
//! the objects say so and nowhere else. Before and after each, everything works.

mod edges;
mod established;

use serde_json::{Value, json};
use truth::Family;

use crate::crowd::{Crowd, policy};

#[test]
fn peers_of_policies_by_packets() {
    let crowd = Crowd::gather("peers");
    assert_eq!(crowd.agrees("before all policies"), 0);

    crowd.under("nothing comes in", &[policy("shop", "deny", &json!({"podSelector": {}}))]);
    crowd.without("nothing comes in");

    let out = json!({"podSelector": {}, "policyTypes": ["Egress"]});
    crowd.under("nothing goes out", &[policy("office", "deny", &out)]);
    crowd.without("nothing goes out");

    let own = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]});
    crowd.under("all of the own namespace", &[policy("shop", "own", &own)]);
    crowd.without("all of the own namespace");

    let everybody = json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}],
        "policyTypes": ["Ingress", "Egress"], "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]});
    crowd.under("from all namespaces, and out to the own db", &[policy("shop", "all", &everybody)]);
    crowd.without("from all namespaces, and out to the own db");

    let expressions = json!({
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
        "ingress": [{"from": [
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["red", "green"]}]},
             "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["robot"]}]}},
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}},
            {"podSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}]}]});
    crowd.under("all operators of expressions", &[policy("shop", "words", &expressions)]);
    crowd.without("all operators of expressions");

    let block = |name: &str| {
        let own = |family| crowd.member(name).address(family).unwrap();
        let (v4, v6) = (own(Family::V4), own(Family::V6));
        json!([{"ipBlock": {"cidr": "10.128.0.0/14", "except": [format!("{v4}/32")]}},
            {"ipBlock": {"cidr": "fd01::/48", "except": [format!("{v6}/128")]}}])
    };
    let blocks = json!({"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": block("robot")}], "egress": [{"to": block("dog")}]});
    crowd.under("networks with exceptions, both ways", &[policy("shop", "blocks", &blocks)]);
    crowd.without("networks with exceptions, both ways");

    // Both ends have a say, and several policies allow together what each of them does.
    let to_shop = json!({"podSelector": {}, "policyTypes": ["Egress"],
        "egress": [{"to": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]});
    let from = |app: &str| {
        let peer = json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": app}}});
        json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [peer]}]})
    };
    crowd.under(
        "both ends, and several together",
        &[policy("office", "out", &to_shop), policy("shop", "desk", &from("desk")), policy("shop", "db", &from("db"))],
    );
    crowd.without("both ends, and several together");
}

#[test]
fn ports_and_labels_of_policies_by_packets() {
    let crowd = Crowd::gather("ports");
    assert_eq!(crowd.agrees("before all policies"), 0);

    let numbers =
        json!({"podSelector": {}, "ingress": [{"ports": [{"port": 8080}, {"protocol": "UDP", "port": 6000}]}]});
    crowd.under("ports by number", &[policy("shop", "numbers", &numbers)]);
    crowd.without("ports by number");

    let range = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": 9000, "endPort": 9092}]}],
        "egress": [{"ports": [{"protocol": "UDP", "port": 5000, "endPort": 5353}, {"port": 9091, "endPort": 9095}]}]});
    crowd.under("ranges of ports", &[policy("shop", "range", &range)]);
    crowd.without("ranges of ports");

    let protocol = json!({"podSelector": {}, "ingress": [{"ports": [{"protocol": "UDP"}]}]});
    crowd.under("a whole protocol", &[policy("shop", "protocol", &protocol)]);
    crowd.without("a whole protocol");

    let named =
        json!({"podSelector": {}, "ingress": [{"ports": [{"port": "http"}, {"protocol": "UDP", "port": "dns"}]}]});
    crowd.under("names of ports, coming in", &[policy("shop", "named", &named)]);
    crowd.without("names of ports, coming in");

    let named = json!({"podSelector": {"matchLabels": {"app": "robot"}}, "policyTypes": ["Egress"],
        "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": "http"}]}]});
    crowd.under("names of ports, going out", &[policy("office", "named", &named)]);
    crowd.without("names of ports, going out");

    labels(&crowd);
}

#[test]
fn tiers_of_policies_by_packets() {
    let mut crowd = Crowd::gather("tiers");
    crowd.administer();
    assert_eq!(crowd.agrees("before all policies"), 0);
    let kind = |kind: &str, name: &str, spec: &Value| json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let admin = |name: &str, spec: &Value| kind("AdminNetworkPolicy", name, spec);
    let team = |name: &str| json!({"matchLabels": {"team": name}});
    let rule = |action: &str, from: &Value| json!({"action": action, "from": [from]});
    let red = json!({"namespaces": team("red")});
    let all = json!({"namespaces": {}});

    // The lowest number is asked first; ports, and pods of namespaces.
    let robots = json!({"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "robot"}}}});
    let first = json!({"priority": 5, "subject": {"namespaces": team("blue")}, "ingress": [
        {"action": "Allow", "from": [robots], "ports": [{"portNumber": {"protocol": "TCP", "port": 8080}},
            {"portRange": {"protocol": "UDP", "start": 5000, "end": 6000}}]},
        {"action": "Pass", "from": [{"namespaces": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}]}]});
    let second = json!({"priority": 6, "subject": {"namespaces": team("blue")}, "ingress": [rule("Deny", &all)]});
    crowd.under("one is asked before the other", &[admin("first", &first), admin("second", &second)]);

    // What is passed on, policies of the namespace decide.
    let only_db = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]});
    crowd.under("what is passed on is for the namespace to decide", &[policy("shop", "own", &only_db)]);
    crowd.without("one is asked before the other");

    // An administrator's word counts more than a namespace's, both ways.
    let word = json!({"priority": 0, "subject": {"namespaces": team("blue")},
        "ingress": [rule("Allow", &red)],
        "egress": [{"action": "Deny", "to": [{"networks": ["10.128.0.0/15", "fd01::/64"]}]}]});
    crowd.under(
        "more than a namespace's word",
        &[admin("word", &word), policy("shop", "deny", &json!({"podSelector": {}}))],
    );
    crowd.without("more than a namespace's word");

    // The baseline is for those of whom nobody has said anything.
    let baseline = json!({"subject": {"namespaces": {}}, "ingress": [rule("Deny", &all)]});
    let open = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{}]});
    crowd.under(
        "the baseline, and a namespace that opens itself",
        &[kind("BaselineAdminNetworkPolicy", "default", &baseline), policy("shop", "open", &open)],
    );
    crowd.without("the baseline, and a namespace that opens itself");
}

/// Labels of pods and of namespaces change while a policy stands.
fn labels(crowd: &Crowd) {
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [
        {"podSelector": {"matchLabels": {"app": "db"}}}, {"namespaceSelector": {"matchLabels": {"floor": "1"}}}]}]});
    crowd.under("labels", &[policy("shop", "labels", &spec)]);
    for (what, words) in [
        ("a pod comes to the allowed", ["pod", "-n", "shop", "job", "app=db"].as_slice()),
        ("a pod comes to those whom the policy is about", &["pod", "-n", "shop", "job", "app=web"]),
        ("a pod goes from those whom the policy is about", &["pod", "-n", "shop", "web", "app-"]),
        ("a pod goes from the allowed", &["pod", "-n", "shop", "db", "app=other"]),
        ("a namespace comes to the allowed", &["namespace", "yard", "floor=1"]),
        ("a namespace goes from the allowed", &["namespace", "office", "floor=2"]),
    ] {
        crowd.label(words);
        let denied = crowd.agrees(what);
        assert!(denied > 0, "{what}");
    }
    crowd.without("labels");
}
