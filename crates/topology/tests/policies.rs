//! Policies, as they come into the database: their rules, and that nobody is reachable against them, whatever comes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use topology::ClusterSettings;
use topology::selector::group_name;
use topology::store::ObjectKind;

use crate::support::quiet::Quiet;
use crate::support::{api, schema};

/// As many as a node's subnet has addresses for, and a few less.
const PODS_OF_A_NODE: usize = 500;

/// As many nodes as the pods need, a namespace, and pods with labels.
fn world(pods: usize) -> Quiet {
    let settings =
        ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()]);
    let mut world = Quiet::new(&schema::schema(), settings);
    for number in 1..=pods / PODS_OF_A_NODE + 1 {
        let name = format!("n{number}");
        world.api.create(ObjectKind::Node, "", &name, json!({"metadata": {"annotations": {}}}));
        world.wire(&name, "shared", 10 + u8::try_from(number).unwrap());
    }
    world.api.create(ObjectKind::Namespace, "", "ns", json!({"metadata": {"labels": {"team": "blue"}}}));
    for number in 0..pods {
        let node = format!("n{}", number / PODS_OF_A_NODE + 1);
        add_pod(&mut world, &format!("p{number}"), &node, if number % 2 == 0 { "web" } else { "db" });
    }
    world.rest();
    world
}

fn add_pod(world: &mut Quiet, name: &str, node: &str, app: &str) {
    let spec = json!({"nodeName": node, "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]});
    let pod = json!({"metadata": {"labels": {"app": app}}, "spec": spec, "status": {"phase": "Running"}});
    world.api.create(ObjectKind::Pod, "ns", name, pod);
}

fn put(world: &mut Quiet, name: &str, spec: Value) {
    if !world.api.create(ObjectKind::Policy, "ns", name, json!({"metadata": {}, "spec": spec})) {
        world.api.change(&policy(name), |object| object["spec"] = spec);
    }
}

fn policy(name: &str) -> api::Key {
    (ObjectKind::Policy, "ns".into(), name.into())
}

/// The rules of policies, each as direction, priority, action and match.
fn rules(world: &Quiet) -> BTreeSet<String> {
    let rows = world.nb.rows();
    let of_policies = rows.iter().filter(|((table, _), values)| {
        table == "ACL"
            && values["external_ids"]
                .get_str("k8s.ovn.org/owner-type")
                .is_some_and(|kind| kind.ends_with("NetworkPolicy"))
    });
    let told = of_policies.map(|(_, values)| {
        format!("{} {} {} {}", values["direction"], values["priority"], values["action"], values["match"])
    });
    told.collect()
}

/// How many ports are in the group of a selector.
fn ports_of(world: &Quiet, words: &str) -> Option<usize> {
    let rows = world.nb.rows();
    let name = group_name(words);
    let group = rows.iter().find(|((table, _), values)| table == "Port_Group" && values["name"].to_string() == name);
    group.map(|(_, values)| values["ports"].atoms().count())
}

const ALL: &str = "ports in namespace ns; pods *";

#[test]
fn a_policy_over_five_thousand_pods_is_one_transaction() {
    let mut world = world(5000);
    // The first controllers of a world make small batches.
    for _ in 0..3 {
        world.restart();
    }
    world.rest();
    let before = world.nb.log.len();
    put(
        &mut world,
        "deny",
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]}),
    );
    world.rest();
    assert_eq!((world.nb.log.len() - before, ports_of(&world, ALL)), (1, Some(5000)));
    world.api.delete(&policy("deny"));
    world.rest();
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
    world.rest();
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
fn a_name_of_a_port_is_the_number_of_those_who_have_it() {
    let mut world = world(2);
    put(&mut world, "named", json!({"podSelector": {}, "ingress": [{"ports": [{"port": "http"}]}]}));
    world.rest();
    let having = |number: u16| format!("{ALL}; port http/TCP={number}");
    let rule = |number: u16| {
        format!("to-lport 1001 allow-related outport == @{} && tcp && tcp.dst == {number}", group_name(&having(number)))
    };
    assert!(rules(&world).contains(&rule(8080)), "{:?}", rules(&world));
    assert_eq!(ports_of(&world, &having(8080)), Some(2));
    let spec = json!({"nodeName": "n1", "containers": [{"ports": [{"name": "http", "containerPort": 9090}]}]});
    let pod = json!({"metadata": {}, "spec": spec, "status": {"phase": "Running"}});
    world.api.create(ObjectKind::Pod, "ns", "other", pod);
    world.rest();
    assert!(rules(&world).contains(&rule(9090)));
    assert_eq!((ports_of(&world, &having(8080)), ports_of(&world, &having(9090))), (Some(2), Some(1)));
    world.api.delete(&(ObjectKind::Pod, "ns".into(), "other".into()));
    world.rest();
    assert!(!rules(&world).contains(&rule(9090)));
    assert_eq!(ports_of(&world, &having(9090)), None);
}

/// Lesson 22: an invalid update deleted the old rules first.
#[test]
fn an_invalid_update_keeps_what_was_good_and_one_that_was_never_good_closes() {
    let mut world = world(2);
    put(&mut world, "web", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}));
    world.rest();
    let good = rules(&world);
    assert_eq!(good.len(), 3);
    put(&mut world, "web", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80000}]}]}));
    world.rest();
    assert_eq!(rules(&world), good);
    let parked: Vec<String> = world.controller.engine.parked().map(|(_, why)| why.to_string()).collect();
    assert!(parked[0].starts_with("spec.ingress[0].ports[0].port: 80000 is no port"), "{parked:?}");
    // The database is where the last good state lives, also for one who starts now.
    world.restart();
    world.rest();
    assert_eq!(rules(&world), good);
    put(
        &mut world,
        "never",
        json!({"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Egress"], "egress": 7}),
    );
    world.rest();
    assert_eq!(rules(&world).len(), 5, "{:?}", rules(&world));
    assert_eq!(ports_of(&world, "ports in namespace ns; pods app=db"), Some(1));
    put(&mut world, "web", json!({"podSelector": {}}));
    put(&mut world, "never", json!({"podSelector": {}}));
    world.rest();
    assert_eq!((rules(&world).len(), world.controller.engine.parked().count()), (2, 0));
}

/// Lesson 23: policies were removed before pods when a namespace was deleted.
#[test]
fn isolation_stays_until_the_last_port_is_gone() {
    for restart in [false, true] {
        let mut world = world(3);
        put(&mut world, "deny", json!({"podSelector": {}}));
        world.rest();
        let closed = rules(&world);
        let namespace = (ObjectKind::Namespace, String::new(), "ns".to_owned());
        world.api.change(&namespace, |object| object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z"));
        world.api.delete(&policy("deny"));
        for name in ["p0", "p1", "p2"] {
            world.rest();
            if restart {
                world.restart();
                world.rest();
            }
            assert_eq!(rules(&world), closed, "{name} is still there");
            world.api.delete(&(ObjectKind::Pod, "ns".into(), name.into()));
        }
        world.api.delete(&namespace);
        world.rest();
        assert_eq!((rules(&world).len(), ports_of(&world, ALL)), (0, None));
    }
}

/// Lesson 26: a restart emptied the groups before it filled them again.
#[test]
fn a_restart_over_policies_writes_nothing() {
    let mut world = world(4);
    put(
        &mut world,
        "web",
        json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [
        {"namespaceSelector": {"matchLabels": {"team": "blue"}}}], "ports": [{"port": "http"}]}]}),
    );
    world.rest();
    let commits = world.nb.log.len();
    world.restart();
    world.rest();
    assert_eq!(world.nb.log.len(), commits + 1, "its epoch, and nothing else");
}

#[test]
fn a_namespace_says_what_is_logged() {
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
        world.rest();
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

/// Watches are not in step: a policy's end may be seen long before its namespace's, though it went with it. Lesson 23.
#[test]
fn a_policy_that_went_with_its_namespace_stays_also_if_that_is_seen_later() {
    let mut world = world(2);
    put(&mut world, "closed", json!({"podSelector": {}}));
    world.rest();
    let closed = rules(&world);
    assert!(!closed.is_empty());
    let key: api::Key = (ObjectKind::Namespace, String::new(), "ns".into());
    world.api.change(&key, |object| object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z"));
    world.api.delete(&policy("closed"));
    // Only the policy's end is seen, and whoever takes over in this moment sees no more.
    for restart in [false, true] {
        if restart {
            world.restart();
        }
        for _ in 0..20 {
            world.round_seeing(&[ObjectKind::Policy]);
        }
        assert_eq!(rules(&world), closed, "restarted: {restart}");
    }
    world.rest();
    assert_eq!(rules(&world), closed);
    for name in ["p0", "p1"] {
        assert!(!rules(&world).is_empty());
        world.api.delete(&(ObjectKind::Pod, "ns".into(), name.into()));
        world.rest();
    }
    assert!(rules(&world).is_empty(), "{:?}", rules(&world));
}

/// A policy that was deleted alone goes as soon as the API says that its namespace lives.
#[test]
fn a_policy_that_went_alone_goes() {
    let mut world = world(2);
    put(&mut world, "closed", json!({"podSelector": {}}));
    put(&mut world, "more", json!({"podSelector": {}, "policyTypes": ["Egress"]}));
    world.rest();
    world.api.delete(&policy("closed"));
    world.round();
    world.api.delete(&policy("more"));
    world.rest();
    assert!(rules(&world).is_empty(), "{:?}", rules(&world));
}

/// Pods of a namespace that is gone keep its labels in the eyes of policies until they are gone themselves.
#[test]
fn pods_keep_the_labels_of_a_namespace_that_is_gone() {
    let mut world = world(1);
    put(
        &mut world,
        "blue",
        json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]}),
    );
    world.rest();
    let members = |world: &Quiet| -> usize {
        let rows = world.nb.rows();
        let sets = rows.iter().filter(|((table, _), values)| {
            table == "Address_Set"
                && values["external_ids"].get_str("k8s.ovn.org/name").is_some_and(|name| name.contains("team=blue"))
        });
        sets.map(|(_, values)| values["addresses"].len()).sum()
    };
    assert_eq!(members(&world), 1);
    world.api.delete(&(ObjectKind::Namespace, String::new(), "ns".into()));
    world.rest();
    assert_eq!(members(&world), 1, "it left before it was gone");
    world.api.delete(&(ObjectKind::Pod, "ns".into(), "p0".into()));
    world.rest();
    assert_eq!(members(&world), 0);
}
