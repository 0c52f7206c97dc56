//! AdminNetworkPolicy and BaselineAdminNetworkPolicy.

use serde_json::{Value, json};

use truth::Cluster;

use crate::world::{ask, cluster, policy};

/// An AdminNetworkPolicy for namespace `a`.
fn admin(name: &str, priority: i32, direction: &str, rules: &Value) -> Value {
    json!({"kind": "AdminNetworkPolicy", "metadata": {"name": name}, "spec": {"priority": priority,
        "subject": {"namespaces": {"matchLabels": {"team": "red"}}}, direction: rules}})
}

/// The BaselineAdminNetworkPolicy, for namespace `a`.
fn baseline(direction: &str, rules: &Value) -> Value {
    json!({"kind": "BaselineAdminNetworkPolicy", "metadata": {"name": "default"}, "spec": {
        "subject": {"namespaces": {"matchLabels": {"team": "red"}}}, direction: rules}})
}

/// A rule for all pods of all namespaces.
fn all(action: &str, direction: &str) -> Value {
    json!({"action": action, direction: [{"namespaces": {}}]})
}

#[test]
fn allow_and_deny_take_precedence_over_network_policies() {
    let shut = policy("a", &json!({"policyTypes": ["Ingress", "Egress"]}));
    let open = policy("a", &json!({"ingress": [{}], "egress": [{}]}));
    let allow = admin("x", 1, "ingress", &json!([all("Allow", "from")]));
    let deny = admin("x", 1, "ingress", &json!([all("Deny", "from")]));
    ask(&cluster(&[shut, allow]), &["b/web a/web TCP/80 yes", "a/web b/web TCP/80 no", "198.51.100.7 a/web TCP/80 no"]);
    ask(&cluster(&[open, deny]), &["b/web a/web TCP/80 no", "a/web b/web TCP/80 yes", "198.51.100.7 a/web TCP/80 yes"]);
}

#[test]
fn pass_and_no_match_defer_to_network_policies() {
    let shut = policy("a", &json!({"podSelector": {"matchLabels": {"app": "web"}}}));
    let rules =
        json!([{"action": "Pass", "from": [{"namespaces": {"matchLabels": {"team": "blue"}}}]}, all("Deny", "from")]);
    let cluster = cluster(&[shut, admin("x", 1, "ingress", &rules)]);
    // Passed: denied by the NetworkPolicy where there is one, and allowed where there is none.
    ask(
        &cluster,
        &["b/web a/web TCP/80 no", "b/web a/db TCP/80 yes", "c/lone a/db TCP/80 no", "198.51.100.7 a/db TCP/80 yes"],
    );
}

#[test]
fn pass_skips_later_rules_and_later_policies() {
    let pass = admin("x", 1, "ingress", &json!([all("Pass", "from"), all("Deny", "from")]));
    let deny = admin("y", 2, "ingress", &json!([all("Deny", "from")]));
    ask(&cluster(&[deny, pass]), &["b/web a/web TCP/80 yes"]);
}

#[test]
fn the_first_matching_rule_decides() {
    let rules = json!([
        {"action": "Allow", "from": [{"namespaces": {}}], "ports": [{"portNumber": {"port": 80}}]},
        {"action": "Deny", "from": [{"namespaces": {}}]},
        {"action": "Allow", "from": [{"namespaces": {}}], "ports": [{"portNumber": {"port": 81}}]},
    ]);
    let cluster = cluster(&[admin("x", 1, "ingress", &rules)]);
    ask(&cluster, &["b/web a/web TCP/80 yes", "b/web a/web UDP/80 no", "b/web a/web TCP/81 no"]);
}

#[test]
fn policies_are_ordered_by_priority_then_name() {
    let (allow, deny) = (json!([all("Allow", "from")]), json!([all("Deny", "from")]));
    for (objects, answer) in [
        ([admin("x", 2, "ingress", &allow), admin("y", 1, "ingress", &deny)], "no"),
        ([admin("x", 0, "ingress", &allow), admin("y", 1, "ingress", &deny)], "yes"),
        ([admin("y", 9, "ingress", &deny), admin("x", 10, "ingress", &allow)], "no"),
        ([admin("y", 5, "ingress", &deny), admin("x", 5, "ingress", &allow)], "yes"),
    ] {
        ask(&cluster(&objects), &[&format!("b/web a/web TCP/80 {answer}")]);
    }
}

#[test]
fn a_subject_may_select_pods() {
    let mut policy = admin("x", 1, "ingress", &json!([all("Deny", "from")]));
    policy["spec"]["subject"] =
        json!({"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}});
    ask(
        &cluster(&[policy]),
        &["c/lone a/web TCP/80 no", "c/lone b/web TCP/80 no", "c/lone a/db TCP/80 yes", "c/lone b/host TCP/80 yes"],
    );
}

#[test]
fn a_pods_peer_needs_both_selectors() {
    let pods =
        json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}, "podSelector": {"matchLabels": {"app": "web"}}});
    let cluster = cluster(&[admin("x", 1, "ingress", &json!([{"action": "Deny", "from": [{"pods": pods}]}]))]);
    ask(
        &cluster,
        &["b/web a/db TCP/80 no", "b/late a/db TCP/80 yes", "a/web a/db TCP/80 yes", "b/host a/web TCP/80 yes"],
    );
}

#[test]
fn egress_peers_may_be_nodes_and_networks() {
    let nodes = json!([{"action": "Deny", "to": [{"nodes": {"matchLabels": {"zone": "west"}}}]}]);
    let to_nodes = cluster(&[admin("x", 1, "egress", &nodes)]);
    // Its own node too: the exemption is for NetworkPolicies only.
    ask(
        &to_nodes,
        &[
            "a/web n2 TCP/80 no",
            "a/web n1 TCP/80 yes",
            "a/web b/host TCP6/80 no",
            "a/db n2 TCP/80 no",
            "a/web b/web TCP/80 yes",
        ],
    );
    let networks = json!([{"action": "Deny", "to": [{"networks": ["198.51.100.0/24", "10.0.2.0/24", "fd18::/64"]}]}]);
    let to_networks = cluster(&[admin("x", 1, "egress", &networks)]);
    ask(
        &to_networks,
        &[
            "a/web 198.51.100.7 TCP/80 no",
            "a/web 203.0.113.7 TCP/80 yes",
            "a/web b/web TCP/80 no",
            "a/web b/web TCP6/80 yes",
            "a/web n2 TCP6/80 no",
            "198.51.100.7 a/web TCP/80 yes",
        ],
    );
}

#[test]
fn ports_match_by_number_range_and_name() {
    let ports = json!([
        {"portNumber": {"protocol": "SCTP", "port": 7}},
        {"portRange": {"protocol": "UDP", "start": 10, "end": 12}},
        {"namedPort": "http"},
    ]);
    let cluster = cluster(&[admin(
        "x",
        1,
        "ingress",
        &json!([{"action": "Deny", "from": [{"namespaces": {}}], "ports": ports}]),
    )]);
    ask(
        &cluster,
        &[
            "b/web a/web SCTP/7 no",
            "b/web a/web TCP/7 yes",
            "b/web a/web UDP/9 yes",
            "b/web a/web UDP/10 no",
            "b/web a/web UDP/12 no",
            "b/web a/web UDP/13 yes",
            "b/web a/web TCP/8080 no",
            "b/web a/db TCP/8080 yes",
            "b/web a/db TCP/9090 no",
            "b/web a/db UDP/9090 yes",
        ],
    );
}

#[test]
fn the_baseline_applies_to_pods_that_no_network_policy_selects() {
    let deny = baseline("ingress", &json!([all("Deny", "from")]));
    let open =
        policy("a", &json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": 80}]}]}));
    let outward = policy("a", &json!({"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Egress"]}));
    let world = cluster(&[deny.clone(), open, outward]);
    // A NetworkPolicy selects `db` for the other direction only.
    ask(
        &world,
        &["b/web a/web TCP/80 yes", "b/web a/web TCP/81 no", "b/web a/db TCP/80 no", "198.51.100.7 a/db TCP/80 yes"],
    );
    let allow = admin("x", 1, "ingress", &json!([all("Allow", "from")]));
    ask(&cluster(&[deny.clone(), allow]), &["b/web a/web TCP/80 yes"]);
    let pass = admin("x", 1, "ingress", &json!([all("Pass", "from")]));
    ask(&cluster(&[deny, pass]), &["b/web a/web TCP/80 no"]);
}

#[test]
fn baseline_rules_are_ordered_and_may_allow() {
    let rules =
        json!([{"action": "Allow", "to": [{"namespaces": {"matchLabels": {"team": "blue"}}}]}, all("Deny", "to")]);
    ask(
        &cluster(&[baseline("egress", &rules)]),
        &["a/web b/web TCP/80 yes", "a/web c/lone TCP/80 no", "c/lone a/web TCP/80 yes"],
    );
}

#[test]
fn egress_and_ingress_are_both_evaluated() {
    let allow = admin("x", 1, "egress", &json!([all("Allow", "to")]));
    let shut = policy("b", &json!({}));
    ask(&cluster(&[allow, shut]), &["a/web b/web TCP/80 no", "a/web c/lone TCP/80 yes"]);
}

#[test]
fn admin_policies_do_not_block_the_kubelet() {
    let deny = json!([all("Deny", "from")]);
    ask(&cluster(&[admin("x", 1, "ingress", &deny), baseline("ingress", &deny)]), &["n1 a/web TCP/80 yes"]);
}

#[test]
fn nodes_and_networks_are_invalid_ingress_peers() {
    for peer in [json!({"nodes": {}}), json!({"networks": ["0.0.0.0/0"]})] {
        let policy = admin("x", 1, "ingress", &json!([{"action": "Deny", "from": [peer]}]));
        assert!(Cluster::from_objects(&[policy]).is_err(), "{peer}");
    }
}
