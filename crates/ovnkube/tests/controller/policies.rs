//! Policies of all tiers by packets: under each policy, exactly the connections that the API allows succeed. Before and
//! after each, everything is allowed.

mod edges;
mod established;

use serde_json::{Value, json};
use truth::Family;

use crate::pod_mesh::{PodMesh, policy};

#[test]
fn policy_peers_match_the_api_by_packets() {
    let mesh = PodMesh::start("peers");
    assert_eq!(mesh.wait_matches_api("before all policies"), 0);

    mesh.check_with("nothing comes in", &[policy("shop", "deny", &json!({"podSelector": {}}))]);
    mesh.check_without("nothing comes in");

    let out = json!({"podSelector": {}, "policyTypes": ["Egress"]});
    mesh.check_with("nothing goes out", &[policy("office", "deny", &out)]);
    mesh.check_without("nothing goes out");

    let own = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]});
    mesh.check_with("all of the own namespace", &[policy("shop", "own", &own)]);
    mesh.check_without("all of the own namespace");

    let everybody = json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}],
        "policyTypes": ["Ingress", "Egress"], "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]});
    mesh.check_with("from all namespaces, and out to the own db", &[policy("shop", "all", &everybody)]);
    mesh.check_without("from all namespaces, and out to the own db");

    let expressions = json!({
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
        "ingress": [{"from": [
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["red", "green"]}]},
             "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["robot"]}]}},
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}},
            {"podSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}]}]});
    mesh.check_with("all operators of expressions", &[policy("shop", "words", &expressions)]);
    mesh.check_without("all operators of expressions");

    let block = |name: &str| {
        let own = |family| mesh.member(name).address(family).unwrap();
        let (v4, v6) = (own(Family::V4), own(Family::V6));
        json!([{"ipBlock": {"cidr": "10.128.0.0/14", "except": [format!("{v4}/32")]}},
            {"ipBlock": {"cidr": "fd01::/48", "except": [format!("{v6}/128")]}}])
    };
    let blocks = json!({"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": block("robot")}], "egress": [{"to": block("dog")}]});
    mesh.check_with("networks with exceptions, both ways", &[policy("shop", "blocks", &blocks)]);
    mesh.check_without("networks with exceptions, both ways");

    // Both ends are evaluated, and several policies are a union.
    let to_shop = json!({"podSelector": {}, "policyTypes": ["Egress"],
        "egress": [{"to": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]});
    let from = |app: &str| {
        let peer = json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": app}}});
        json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [peer]}]})
    };
    mesh.check_with(
        "both ends, and several together",
        &[policy("office", "out", &to_shop), policy("shop", "desk", &from("desk")), policy("shop", "db", &from("db"))],
    );
    mesh.check_without("both ends, and several together");
}

#[test]
fn policy_ports_and_label_changes_match_the_api_by_packets() {
    let mesh = PodMesh::start("ports");
    assert_eq!(mesh.wait_matches_api("before all policies"), 0);

    let numbers =
        json!({"podSelector": {}, "ingress": [{"ports": [{"port": 8080}, {"protocol": "UDP", "port": 6000}]}]});
    mesh.check_with("ports by number", &[policy("shop", "numbers", &numbers)]);
    mesh.check_without("ports by number");

    let range = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": 9000, "endPort": 9092}]}],
        "egress": [{"ports": [{"protocol": "UDP", "port": 5000, "endPort": 5353}, {"port": 9091, "endPort": 9095}]}]});
    mesh.check_with("ranges of ports", &[policy("shop", "range", &range)]);
    mesh.check_without("ranges of ports");

    let protocol = json!({"podSelector": {}, "ingress": [{"ports": [{"protocol": "UDP"}]}]});
    mesh.check_with("a whole protocol", &[policy("shop", "protocol", &protocol)]);
    mesh.check_without("a whole protocol");

    let named =
        json!({"podSelector": {}, "ingress": [{"ports": [{"port": "http"}, {"protocol": "UDP", "port": "dns"}]}]});
    mesh.check_with("names of ports, coming in", &[policy("shop", "named", &named)]);
    mesh.check_without("names of ports, coming in");

    let named = json!({"podSelector": {"matchLabels": {"app": "robot"}}, "policyTypes": ["Egress"],
        "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": "http"}]}]});
    mesh.check_with("names of ports, going out", &[policy("office", "named", &named)]);
    mesh.check_without("names of ports, going out");

    labels(&mesh);
}

#[test]
fn admin_policy_tiers_match_the_api_by_packets() {
    let mut mesh = PodMesh::start("tiers");
    mesh.install_admin_policies();
    assert_eq!(mesh.wait_matches_api("before all policies"), 0);
    let kind = |kind: &str, name: &str, spec: &Value| json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let admin = |name: &str, spec: &Value| kind("AdminNetworkPolicy", name, spec);
    let team = |name: &str| json!({"matchLabels": {"team": name}});
    let rule = |action: &str, from: &Value| json!({"action": action, "from": [from]});
    let red = json!({"namespaces": team("red")});
    let all = json!({"namespaces": {}});

    // The lowest priority number is evaluated first.
    let robots = json!({"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "robot"}}}});
    let first = json!({"priority": 5, "subject": {"namespaces": team("blue")}, "ingress": [
        {"action": "Allow", "from": [robots], "ports": [{"portNumber": {"protocol": "TCP", "port": 8080}},
            {"portRange": {"protocol": "UDP", "start": 5000, "end": 6000}}]},
        {"action": "Pass", "from": [{"namespaces": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}]}]});
    let second = json!({"priority": 6, "subject": {"namespaces": team("blue")}, "ingress": [rule("Deny", &all)]});
    mesh.check_with("two AdminNetworkPolicies in order", &[admin("first", &first), admin("second", &second)]);

    // Passed traffic is decided by NetworkPolicies.
    let only_db = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]});
    mesh.check_with("passed traffic is decided by NetworkPolicies", &[policy("shop", "own", &only_db)]);
    mesh.check_without("two AdminNetworkPolicies in order");

    // AdminNetworkPolicies override NetworkPolicies in both directions.
    let word = json!({"priority": 0, "subject": {"namespaces": team("blue")},
        "ingress": [rule("Allow", &red)],
        "egress": [{"action": "Deny", "to": [{"networks": ["10.128.0.0/15", "fd01::/64"]}]}]});
    mesh.check_with(
        "AdminNetworkPolicies override NetworkPolicies",
        &[admin("word", &word), policy("shop", "deny", &json!({"podSelector": {}}))],
    );
    mesh.check_without("AdminNetworkPolicies override NetworkPolicies");

    // The baseline applies to pods that no NetworkPolicy selects.
    let baseline = json!({"subject": {"namespaces": {}}, "ingress": [rule("Deny", &all)]});
    let open = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{}]});
    mesh.check_with(
        "the baseline, and a NetworkPolicy that allows",
        &[kind("BaselineAdminNetworkPolicy", "default", &baseline), policy("shop", "open", &open)],
    );
    mesh.check_without("the baseline, and a NetworkPolicy that allows");
}

/// Labels of pods and namespaces change under a policy.
fn labels(mesh: &PodMesh) {
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [
        {"podSelector": {"matchLabels": {"app": "db"}}}, {"namespaceSelector": {"matchLabels": {"floor": "1"}}}]}]});
    mesh.check_with("labels", &[policy("shop", "labels", &spec)]);
    for (what, words) in [
        ("a pod becomes an allowed peer", ["pod", "-n", "shop", "job", "app=db"].as_slice()),
        ("a pod becomes selected", &["pod", "-n", "shop", "job", "app=web"]),
        ("a pod is no longer selected", &["pod", "-n", "shop", "web", "app-"]),
        ("a pod is no longer an allowed peer", &["pod", "-n", "shop", "db", "app=other"]),
        ("a namespace becomes an allowed peer", &["namespace", "yard", "floor=1"]),
        ("a namespace is no longer an allowed peer", &["namespace", "office", "floor=2"]),
    ] {
        mesh.label(words);
        let denied = mesh.wait_matches_api(what);
        assert!(denied > 0, "{what}");
    }
    mesh.check_without("labels");
}
