//! NetworkPolicies: their ACLs and port groups, invalid updates, and terminating namespaces.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

use objects::ObjectKind;
use serde_json::{Value, json};
use topology::ClusterSettings;
use topology::selector::group_name;

use crate::support::test_cluster::TestCluster;
use crate::support::{api, schema};

/// Somewhat fewer than a node's subnet has addresses.
const PODS_OF_A_NODE: usize = 500;

/// Labelled pods in one namespace, on as many nodes as they need.
fn world(pods: usize) -> TestCluster {
    let settings =
        ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()]);
    let mut world = TestCluster::new(&schema::schema(), settings);
    for number in 1..=pods / PODS_OF_A_NODE + 1 {
        let name = format!("n{number}");
        world.api.create(ObjectKind::Node, "", &name, json!({"metadata": {"annotations": {}}}));
        world.annotate_node(&name, "shared", 10 + u8::try_from(number).unwrap());
    }
    world.api.create(ObjectKind::Namespace, "", "ns", json!({"metadata": {"labels": {"team": "blue"}}}));
    for number in 0..pods {
        let node = format!("n{}", number / PODS_OF_A_NODE + 1);
        add_pod(&mut world, &format!("p{number}"), &node, if number % 2 == 0 { "web" } else { "db" });
    }
    world.run_until_idle();
    world
}

fn add_pod(world: &mut TestCluster, name: &str, node: &str, app: &str) {
    let spec = json!({"nodeName": node, "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]});
    let pod = json!({"metadata": {"labels": {"app": app}}, "spec": spec, "status": {"phase": "Running"}});
    world.api.create(ObjectKind::Pod, "ns", name, pod);
}

fn put(world: &mut TestCluster, name: &str, spec: Value) {
    if !world.api.create(ObjectKind::Policy, "ns", name, json!({"metadata": {}, "spec": spec})) {
        world.api.change(&policy(name), |object| object["spec"] = spec);
    }
}

fn policy(name: &str) -> api::Key {
    (ObjectKind::Policy, "ns".into(), name.into())
}

/// The ACLs of policies as direction, priority, action and match.
fn rules(world: &TestCluster) -> BTreeSet<String> {
    let rows = world.nb.rows();
    let of_policies = rows.iter().filter(|((table, _), values)| {
        table == "ACL"
            && values["external_ids"]
                .get_str("k8s.ovn.org/owner-type")
                .is_some_and(|kind| kind.ends_with("NetworkPolicy"))
    });
    let found = of_policies.map(|(_, values)| {
        format!("{} {} {} {}", values["direction"], values["priority"], values["action"], values["match"])
    });
    found.collect()
}

/// The number of ports in a selector's group.
fn ports_of(world: &TestCluster, words: &str) -> Option<usize> {
    let rows = world.nb.rows();
    let name = group_name(words);
    let group = rows.iter().find(|((table, _), values)| table == "Port_Group" && values["name"].to_string() == name);
    group.map(|(_, values)| values["ports"].atoms().count())
}

const ALL: &str = "ports in namespace ns; pods *";

#[test]
fn a_policy_over_five_thousand_pods_is_one_transaction() {
    let mut world = world(5000);
    // The first controllers use small batches.
    for _ in 0..3 {
        world.restart();
    }
    world.run_until_idle();
    let before = world.nb.log.len();
    put(
        &mut world,
        "deny",
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]}),
    );
    world.run_until_idle();
    assert_eq!((world.nb.log.len() - before, ports_of(&world, ALL)), (1, Some(5000)));
    world.api.delete(&policy("deny"));
    world.run_until_idle();
    assert_eq!((rules(&world).len(), ports_of(&world, ALL)), (0, None));
}

#[test]
fn rules_are_merged_by_family_and_protocol() {
    let mut world = world(2);
    put(
        &mut world,
        "all",
        json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.2.0.0/16"]}},
                {"ipBlock": {"cidr": "192.0.2.0/24"}}, {"ipBlock": {"cidr": "fd00::/8"}}],
                "ports": [{"port": 80}, {"port": 443}, {"port": 8000, "endPort": 9000}, {"protocol": "SCTP", "port": 7}]}],
            "egress": [{"ports": [{"protocol": "UDP", "port": 53}]}, {"to": [{"ipBlock": {"cidr": "fd00::/8"}}]}]}),
    );
    world.run_until_idle();
    let group = group_name(ALL);
    let expected = [
        format!("to-lport 1000 drop outport == @{group}"),
        format!("to-lport 1001 allow outport == @{group} && (arp || nd)"),
        format!(
            "to-lport 1001 allow-related outport == @{group} && (ip4.src == 192.0.2.0/24 || (ip4.src == 10.0.0.0/8 && \
             ip4.src != {{10.1.0.0/16, 10.2.0.0/16}})) && ((tcp && (tcp.dst == {{80, 443}} || 8000 <= tcp.dst <= 9000)) || \
             (sctp && sctp.dst == 7))"
        ),
        format!("from-lport 1000 drop inport == @{group}"),
        format!("from-lport 1001 allow inport == @{group} && (arp || nd)"),
        format!("from-lport 1001 allow-related inport == @{group} && udp && udp.dst == 53"),
    ];
    assert_eq!(rules(&world), expected.into());
}

#[test]
fn a_named_port_matches_the_pods_that_define_it() {
    let mut world = world(2);
    put(&mut world, "named", json!({"podSelector": {}, "ingress": [{"ports": [{"port": "http"}]}]}));
    world.run_until_idle();
    let having = |number: u16| format!("{ALL}; port http/TCP={number}");
    let rule = |number: u16| {
        format!("to-lport 1001 allow-related outport == @{} && tcp && tcp.dst == {number}", group_name(&having(number)))
    };
    assert!(rules(&world).contains(&rule(8080)), "{:?}", rules(&world));
    assert_eq!(ports_of(&world, &having(8080)), Some(2));
    let spec = json!({"nodeName": "n1", "containers": [{"ports": [{"name": "http", "containerPort": 9090}]}]});
    let pod = json!({"metadata": {}, "spec": spec, "status": {"phase": "Running"}});
    world.api.create(ObjectKind::Pod, "ns", "other", pod);
    world.run_until_idle();
    assert!(rules(&world).contains(&rule(9090)));
    assert_eq!((ports_of(&world, &having(8080)), ports_of(&world, &having(9090))), (Some(2), Some(1)));
    world.api.delete(&(ObjectKind::Pod, "ns".into(), "other".into()));
    world.run_until_idle();
    assert!(!rules(&world).contains(&rule(9090)));
    assert_eq!(ports_of(&world, &having(9090)), None);
}

/// Lesson 22: an invalid update deleted the old rules first: it failed open.
#[test]
fn an_invalid_update_keeps_the_last_valid_rules_and_a_never_valid_policy_isolates() {
    let mut world = world(2);
    put(&mut world, "web", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}));
    world.run_until_idle();
    let good = rules(&world);
    assert_eq!(good.len(), 3);
    put(&mut world, "web", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80000}]}]}));
    world.run_until_idle();
    assert_eq!(rules(&world), good);
    let parked: Vec<String> = world.controller.engine.parked().map(|(_, why)| why.to_string()).collect();
    assert!(parked[0].starts_with("invalid policy: spec.ingress[0].ports[0].port: 80000 is not a port"), "{parked:?}");
    // The last valid version is in the database, so a restarted controller finds it.
    world.restart();
    world.run_until_idle();
    assert_eq!(rules(&world), good);
    put(
        &mut world,
        "never",
        json!({"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Egress"], "egress": 7}),
    );
    world.run_until_idle();
    assert_eq!(rules(&world).len(), 5, "{:?}", rules(&world));
    assert_eq!(ports_of(&world, "ports in namespace ns; pods app=db"), Some(1));
    put(&mut world, "web", json!({"podSelector": {}}));
    put(&mut world, "never", json!({"podSelector": {}}));
    world.run_until_idle();
    assert_eq!((rules(&world).len(), world.controller.engine.parked().count()), (2, 0));
}

/// Lesson 23: when a namespace was deleted, its policies were removed before its pods.
#[test]
fn policies_of_a_terminating_namespace_stay_until_its_last_port_is_gone() {
    for restart in [false, true] {
        let mut world = world(3);
        put(&mut world, "deny", json!({"podSelector": {}}));
        world.run_until_idle();
        let closed = rules(&world);
        let namespace = (ObjectKind::Namespace, String::new(), "ns".to_owned());
        world.api.change(&namespace, |object| object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z"));
        world.api.delete(&policy("deny"));
        for name in ["p0", "p1", "p2"] {
            world.run_until_idle();
            if restart {
                world.restart();
                world.run_until_idle();
            }
            assert_eq!(rules(&world), closed, "{name} still exists");
            world.api.delete(&(ObjectKind::Pod, "ns".into(), name.into()));
        }
        world.api.delete(&namespace);
        world.run_until_idle();
        assert_eq!((rules(&world).len(), ports_of(&world, ALL)), (0, None));
    }
}

/// Lesson 26: a restart emptied the default-deny groups before it filled them again.
#[test]
fn a_restart_over_policies_writes_only_its_sequence_value() {
    let mut world = world(4);
    put(
        &mut world,
        "web",
        json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [
        {"namespaceSelector": {"matchLabels": {"team": "blue"}}}], "ports": [{"port": "http"}]}]}),
    );
    world.run_until_idle();
    let commits = world.nb.log.len();
    world.restart();
    world.run_until_idle();
    assert_eq!(world.nb.log.len(), commits + 1, "only the sequence value");
}

#[test]
fn acl_logging_follows_the_namespace_annotation() {
    let mut world = world(1);
    put(&mut world, "web", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}));
    let namespace = (ObjectKind::Namespace, String::new(), "ns".to_owned());
    for (annotation, logged, meters, parked) in [
        (r#"{"deny":"alert","allow":"notice"}"#, vec!["alert", "notice"], 1, 0),
        (r#"{"deny":"info"}"#, vec!["info"], 1, 0),
        ("{}", vec![], 0, 0),
        (r#"{"deny":"loud"}"#, vec![], 0, 1),
    ] {
        world.api.change(&namespace, |object| {
            object["metadata"]["annotations"]["k8s.ovn.org/acl-logging"] = json!(annotation);
        });
        world.run_until_idle();
        let rows = world.nb.rows();
        let rules = rows.iter().filter(|((table, _), values)| table == "ACL" && values["log"].to_string() == "true");
        let mut severities: Vec<String> = rules.map(|(_, values)| values["severity"].to_string()).collect();
        severities.sort();
        let meter = |values: &ovsdb::operation::RowValues| values["name"].to_string() == "acl-logging";
        let found = rows.iter().filter(|((table, _), values)| table == "Meter" && meter(values)).count();
        assert_eq!((severities, found), (logged.into_iter().map(String::from).collect(), meters), "{annotation}");
        assert_eq!(world.controller.engine.parked().count(), parked);
    }
}

/// Lesson 23: watches are not ordered, so a policy's deletion may be seen long before its namespace's.
#[test]
fn a_policy_stays_if_its_namespaces_deletion_is_seen_later() {
    let mut world = world(2);
    put(&mut world, "closed", json!({"podSelector": {}}));
    world.run_until_idle();
    let closed = rules(&world);
    assert!(!closed.is_empty());
    let key: api::Key = (ObjectKind::Namespace, String::new(), "ns".into());
    world.api.change(&key, |object| object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z"));
    world.api.delete(&policy("closed"));
    // Only the policy's deletion is seen, also by a controller that takes over now.
    for restart in [false, true] {
        if restart {
            world.restart();
        }
        for _ in 0..20 {
            world.round_seeing(&[ObjectKind::Policy]);
        }
        assert_eq!(rules(&world), closed, "restarted: {restart}");
    }
    world.run_until_idle();
    assert_eq!(rules(&world), closed);
    for name in ["p0", "p1"] {
        assert!(!rules(&world).is_empty());
        world.api.delete(&(ObjectKind::Pod, "ns".into(), name.into()));
        world.run_until_idle();
    }
    assert!(rules(&world).is_empty(), "{:?}", rules(&world));
}

/// As soon as the namespace check finds the namespace active.
#[test]
fn a_policy_deleted_alone_is_removed() {
    let mut world = world(2);
    put(&mut world, "closed", json!({"podSelector": {}}));
    put(&mut world, "more", json!({"podSelector": {}, "policyTypes": ["Egress"]}));
    world.run_until_idle();
    world.api.delete(&policy("closed"));
    world.round();
    world.api.delete(&policy("more"));
    world.run_until_idle();
    assert!(rules(&world).is_empty(), "{:?}", rules(&world));
}

/// Until the pods are deleted themselves.
#[test]
fn pods_keep_the_labels_of_a_deleted_namespace() {
    let mut world = world(1);
    put(
        &mut world,
        "blue",
        json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]}),
    );
    world.run_until_idle();
    let members = |world: &TestCluster| -> usize {
        let rows = world.nb.rows();
        let sets = rows.iter().filter(|((table, _), values)| {
            table == "Address_Set"
                && values["external_ids"].get_str("k8s.ovn.org/name").is_some_and(|name| name.contains("team=blue"))
        });
        sets.map(|(_, values)| values["addresses"].len()).sum()
    };
    assert_eq!(members(&world), 1);
    world.api.delete(&(ObjectKind::Namespace, String::new(), "ns".into()));
    world.run_until_idle();
    assert_eq!(members(&world), 1, "the pod left the set before its deletion");
    world.api.delete(&(ObjectKind::Pod, "ns".into(), "p0".into()));
    world.run_until_idle();
    assert_eq!(members(&world), 0);
}
