//! NetworkPolicy.

use serde_json::{Value, json};
use truth::Cluster;

use crate::world::{ask, cluster, objects, policy};

/// A policy for all pods of namespace `a` with these ingress rules.
fn ingress(rules: &Value) -> Cluster {
    cluster(&[policy("a", &json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": rules}))])
}

/// A policy for all pods of namespace `a` with these egress rules.
fn egress(rules: &Value) -> Cluster {
    cluster(&[policy("a", &json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": rules}))])
}

#[test]
fn without_policies_everything_is_allowed() {
    ask(
        &cluster(&[]),
        &[
            "a/web b/web TCP/80 yes",
            "a/web b/web SCTP6/80 yes",
            "n1 a/db UDP/80 yes",
            "198.51.100.7 a/db TCP/80 yes",
            "a/web 198.51.100.7 TCP/80 yes",
            "n1 n2 TCP/80 yes",
        ],
    );
}

#[test]
fn traffic_needs_a_family_that_both_ends_have() {
    ask(
        &cluster(&[]),
        &[
            "a/web b/late TCP/80 yes",
            "a/web b/late TCP6/80 no",
            "198.51.100.7 a/web TCP6/80 no",
            "a/web a/none TCP/80 no",
        ],
    );
}

#[test]
fn default_deny_applies_to_one_direction_and_namespace() {
    ask(
        &ingress(&json!([])),
        &["b/web a/web TCP/80 no", "a/db a/web TCP/80 no", "a/web b/web TCP/80 yes", "b/web c/lone TCP/80 yes"],
    );
    ask(
        &egress(&json!([])),
        &["a/web b/web TCP/80 no", "a/web a/db TCP/80 no", "b/web a/web TCP/80 yes", "a/web 198.51.100.7 TCP/80 no"],
    );
}

#[test]
fn policy_types_default_to_ingress_and_to_egress_only_with_egress_rules() {
    let rule = json!({"to": [{"podSelector": {}}]});
    for (spec, inward, outward) in [
        (json!({"podSelector": {}}), "no", "yes"),
        (json!({"podSelector": {}, "egress": []}), "no", "yes"),
        (json!({"podSelector": {}, "policyTypes": []}), "no", "yes"),
        (json!({"podSelector": {}, "egress": [rule]}), "no", "no"),
        (json!({"podSelector": {}, "policyTypes": ["Egress"]}), "yes", "no"),
        (json!({"podSelector": {}, "policyTypes": ["Ingress"], "egress": [rule]}), "no", "yes"),
        (json!({"podSelector": {}, "policyTypes": ["Egress"], "ingress": [{}]}), "yes", "no"),
        (json!({"policyTypes": ["Ingress", "Egress"]}), "no", "no"),
    ] {
        let cluster = cluster(&[policy("a", &spec)]);
        ask(&cluster, &[&format!("b/web a/web TCP/80 {inward}"), &format!("a/web b/web TCP/80 {outward}")]);
    }
}

#[test]
fn a_rule_without_peers_matches_all_peers() {
    for rules in [json!([{}]), json!([{"from": []}]), json!([{"from": [], "ports": []}])] {
        ask(&ingress(&rules), &["b/web a/web TCP/80 yes", "198.51.100.7 a/web UDP/9 yes", "n2 a/web SCTP/9 yes"]);
    }
    for rules in [json!([{}]), json!([{"to": []}])] {
        ask(&egress(&rules), &["a/web b/web TCP/80 yes", "a/web 198.51.100.7 TCP/80 yes"]);
    }
}

#[test]
fn only_selected_pods_are_isolated() {
    let cluster = cluster(&[policy("a", &json!({"podSelector": {"matchLabels": {"app": "web"}}}))]);
    ask(&cluster, &["b/web a/web TCP/80 no", "b/web a/db TCP/80 yes", "a/web b/web TCP/80 yes"]);
}

#[test]
fn a_pod_selector_alone_selects_in_the_policys_namespace() {
    let cluster = ingress(&json!([{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}]));
    ask(&cluster, &["a/web a/db TCP/80 yes", "b/web a/db TCP/80 no", "a/db a/web TCP/80 no"]);
    ask(&ingress(&json!([{"from": [{"podSelector": {}}]}])), &["a/web a/db TCP/80 yes", "b/web a/db TCP/80 no"]);
}

#[test]
fn a_namespace_selector_selects_all_pods_of_its_namespaces() {
    let blue = json!([{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]);
    ask(
        &ingress(&blue),
        &["b/web a/web TCP/80 yes", "b/late a/web TCP/80 yes", "c/lone a/web TCP/80 no", "a/db a/web TCP/80 no"],
    );
    let all = json!([{"from": [{"namespaceSelector": {}}]}]);
    ask(
        &ingress(&all),
        &[
            "b/web a/web TCP/80 yes",
            "c/lone a/web TCP/80 yes",
            "a/db a/web TCP/80 yes",
            "198.51.100.7 a/web TCP/80 no",
            "n2 a/web TCP/80 no",
        ],
    );
}

#[test]
fn selectors_in_one_peer_are_anded_and_in_two_peers_ored() {
    let (blue, web) = (json!({"matchLabels": {"team": "blue"}}), json!({"matchLabels": {"app": "web"}}));
    let one = json!([{"from": [{"namespaceSelector": blue, "podSelector": web}]}]);
    ask(&ingress(&one), &["b/web a/db TCP/80 yes", "b/late a/db TCP/80 no", "a/web a/db TCP/80 no"]);
    let two = json!([{"from": [{"namespaceSelector": blue}, {"podSelector": web}]}]);
    ask(
        &ingress(&two),
        &["b/web a/db TCP/80 yes", "b/late a/db TCP/80 yes", "a/web a/db TCP/80 yes", "c/lone a/db TCP/80 no"],
    );
}

#[test]
fn not_in_and_does_not_exist_select_unlabelled_pods() {
    let not_blue = json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["blue"]}]});
    let cluster = ingress(&json!([{"from": [{"namespaceSelector": not_blue}]}]));
    ask(&cluster, &["c/lone a/web TCP/80 yes", "a/db a/web TCP/80 yes", "b/web a/web TCP/80 no"]);
}

#[test]
fn an_ip_block_matches_any_owner_of_the_address_except_exceptions() {
    let block = json!({"cidr": "198.51.100.0/24", "except": ["198.51.100.128/25", "198.51.100.7/32"]});
    let questions = [
        "198.51.100.8 a/web TCP/80 yes",
        "198.51.100.7 a/web TCP/80 no",
        "198.51.100.200 a/web TCP/80 no",
        "b/web a/web TCP/80 no",
    ];
    ask(&ingress(&json!([{"from": [{"ipBlock": block}]}])), &questions);
    ask(
        &egress(&json!([{"to": [{"ipBlock": block}]}])),
        &["a/web 198.51.100.8 TCP/80 yes", "a/web 198.51.100.7 TCP/80 no"],
    );
    let pods = json!([{"from": [{"ipBlock": {"cidr": "10.0.2.0/24"}}]}]);
    ask(&ingress(&pods), &["b/web a/web TCP/80 yes", "c/lone a/web TCP/80 no", "b/web a/web TCP6/80 no"]);
    // An exception of one peer may be allowed by another.
    let two = json!([{"from": [{"ipBlock": block}, {"ipBlock": {"cidr": "198.51.100.7/32"}}]}]);
    ask(&ingress(&two), &["198.51.100.7 a/web TCP/80 yes"]);
}

#[test]
fn an_ip_block_of_one_family_does_not_match_the_other() {
    let cluster = egress(&json!([{"to": [{"ipBlock": {"cidr": "::/0"}}]}]));
    ask(&cluster, &["a/web b/web TCP6/80 yes", "a/web b/web TCP/80 no", "a/web 2001:db8::1 TCP6/80 yes"]);
}

#[test]
fn a_port_defaults_to_tcp() {
    let cluster =
        ingress(&json!([{"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 7, "protocol": "SCTP"}]}]));
    ask(
        &cluster,
        &[
            "b/web a/web TCP/80 yes",
            "b/web a/web UDP/80 no",
            "b/web a/web UDP/53 yes",
            "b/web a/web TCP/53 no",
            "b/web a/web SCTP/7 yes",
            "b/web a/web TCP/7 no",
        ],
    );
}

#[test]
fn a_protocol_without_a_port_matches_all_its_ports() {
    ask(&ingress(&json!([{"ports": [{"protocol": "SCTP"}]}])), &["b/web a/web SCTP/1 yes", "b/web a/web TCP/1 no"]);
    ask(&ingress(&json!([{"ports": [{}]}])), &["b/web a/web TCP/1 yes", "b/web a/web UDP/1 no"]);
}

#[test]
fn a_port_range_includes_both_ends() {
    let cluster = egress(&json!([{"ports": [{"port": 80, "endPort": 90, "protocol": "UDP"}]}]));
    ask(
        &cluster,
        &[
            "a/web b/web UDP/79 no",
            "a/web b/web UDP/80 yes",
            "a/web b/web UDP/90 yes",
            "a/web b/web UDP/91 no",
            "a/web b/web TCP/85 no",
        ],
    );
}

#[test]
fn a_named_port_is_resolved_at_the_destination() {
    let inward = ingress(&json!([{"ports": [{"port": "http"}, {"port": "dns"}]}]));
    // The same name has another number on each pod; `dns` is UDP there, and the rule is for TCP.
    ask(
        &inward,
        &[
            "b/web a/web TCP/8080 yes",
            "b/web a/db TCP/8080 no",
            "b/web a/db TCP/9090 yes",
            "b/web a/web TCP/53 no",
            "b/web a/web UDP/53 no",
        ],
    );
    let udp = ingress(&json!([{"ports": [{"port": "dns", "protocol": "UDP"}]}]));
    ask(&udp, &["b/web a/web UDP/53 yes", "b/web a/web TCP/53 no"]);
    let outward = egress(&json!([{"ports": [{"port": "http"}]}]));
    ask(
        &outward,
        &[
            "a/web a/db TCP/9090 yes",
            "a/web a/db TCP/8080 no",
            "a/db a/web TCP/8080 yes",
            "a/web b/web TCP/8080 no",
            "a/web 198.51.100.7 TCP/8080 no",
            "a/web b/host TCP/8080 no",
        ],
    );
}

#[test]
fn two_policies_are_a_union() {
    let rule = |port: u16| json!({"podSelector": {}, "ingress": [{"ports": [{"port": port}]}]});
    let deny = json!({"podSelector": {}});
    let cluster = cluster(&[policy("a", &rule(80)), policy("a", &deny), policy("a", &rule(81))]);
    ask(&cluster, &["b/web a/web TCP/80 yes", "b/web a/web TCP/81 yes", "b/web a/web TCP/82 no"]);
}

#[test]
fn peers_and_ports_are_matched_per_rule() {
    let rules = json!([
        {"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}], "ports": [{"port": 80}]},
        {"from": [{"podSelector": {}}], "ports": [{"port": 81}]},
    ]);
    ask(
        &ingress(&rules),
        &["b/web a/web TCP/80 yes", "b/web a/web TCP/81 no", "a/db a/web TCP/81 yes", "a/db a/web TCP/80 no"],
    );
}

#[test]
fn both_ends_must_allow() {
    let out =
        policy("a", &json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": 80}]}]}));
    let into = policy("b", &json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}, {"port": 81}]}]}));
    let cluster = cluster(&[out, into]);
    ask(
        &cluster,
        &["a/web b/web TCP/80 yes", "a/web b/web TCP/81 no", "c/lone b/web TCP/81 yes", "c/lone b/web TCP/82 no"],
    );
}

#[test]
fn denied_egress_does_not_block_ingress() {
    // Replies of an allowed connection are not evaluated again.
    ask(&egress(&json!([])), &["b/web a/web TCP/80 yes", "198.51.100.7 a/web TCP/80 yes"]);
}

#[test]
fn a_pods_own_node_is_always_allowed_in_and_others_by_address() {
    ask(
        &ingress(&json!([])),
        &[
            "n1 a/web TCP/80 yes",
            "n2 a/web TCP/80 no",
            "n2 a/db TCP6/80 yes",
            "b/host a/db TCP/80 yes",
            "b/host a/web TCP/80 no",
        ],
    );
    let block = json!([{"from": [{"ipBlock": {"cidr": "172.18.0.2/32"}}]}]);
    ask(&ingress(&block), &["n2 a/web TCP/80 yes", "b/host a/web TCP/80 yes", "n2 a/web TCP6/80 no"]);
}

#[test]
fn a_pods_own_node_is_reachable_unless_egress_to_it_is_filtered() {
    let documented = egress(&json!([]));
    ask(&documented, &["a/web n1 TCP/80 yes", "a/web n2 TCP/80 no", "a/db b/host TCP/80 yes"]);
    ask(&documented.filter_egress_to_own_node(), &["a/web n1 TCP/80 no", "n1 a/web TCP/80 yes"]);
}

#[test]
fn a_pod_reaches_itself() {
    let cluster = cluster(&[policy("a", &json!({"policyTypes": ["Ingress", "Egress"]}))]);
    ask(&cluster, &["a/web a/web TCP/80 yes", "a/web 10.0.1.1 TCP/80 yes", "a/web a/db TCP/80 no"]);
}

#[test]
fn host_network_pods_are_neither_isolated_nor_selected() {
    let deny = policy("b", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    ask(&cluster(&[deny]), &["c/lone b/host TCP/80 yes", "b/host c/lone TCP/80 yes", "c/lone b/web TCP/80 no"]);
    let select = json!([{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "host"}}}]}]);
    ask(&ingress(&select), &["b/host a/web TCP/80 no", "n2 a/web TCP/80 no"]);
}

#[test]
fn completed_pods_are_neither_isolated_nor_selected() {
    let deny = policy("b", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    ask(&cluster(&[deny]), &["c/lone b/done TCP/80 yes", "c/lone b/web TCP/80 no"]);
    // Its address was reused, and the new owner is not allowed by the labels of the first.
    let select = policy(
        "a",
        &json!({"ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "job"}}}]}]}),
    );
    let next = json!({"kind": "Pod", "metadata": {"namespace": "b", "name": "next"}, "spec": {"nodeName": "n2"},
        "status": {"podIPs": [{"ip": "10.0.2.3"}]}});
    ask(&cluster(&[select, next]), &["b/next a/web TCP/80 no", "b/done a/web TCP/80 no", "10.0.2.3 a/web TCP/80 no"]);
}

#[test]
fn an_unparsable_object_is_named() {
    for (spec, word) in [
        (json!({"podSelecter": {}}), "podSelecter"),
        (json!({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/33"}}]}]}), "10.0.0.0/33"),
        (json!({"ingress": [{"ports": [{"port": 65536}]}]}), "NumberOrName"),
        (json!({"policyTypes": ["Both"]}), "Both"),
        (json!({"ingress": [{"to": []}]}), "to"),
    ] {
        let mut objects = objects();
        objects.push(policy("a", &spec));
        let error = Cluster::from_objects(&objects).unwrap_err();
        assert_eq!(error.object, "NetworkPolicy a/p");
        assert!(error.problem.contains(word), "{error}");
    }
}
