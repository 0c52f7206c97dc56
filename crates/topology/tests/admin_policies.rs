//! AdminNetworkPolicy and BaselineAdminNetworkPolicy: compiled rules and their ACLs.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use netmodel::Family;
use objects::{Action, AdminPolicyFacts, Name, ObjectKind, Protocol};
use serde_json::{Value, json};
use topology::ClusterSettings;
use topology::rules::{Compiled, PeerMatch, PortNumbers, compile_admin_policy};
use topology::selector::{group_name, set_name};

use crate::support::test_cluster::TestCluster;
use crate::support::{api, schema};

/// Resolves every named TCP port to these numbers.
struct Everywhere(Vec<u16>);

impl PortNumbers for Everywhere {
    fn numbers(&self, _: &Name, protocol: Protocol) -> Vec<u16> {
        if protocol == Protocol::Tcp { self.0.clone() } else { Vec::new() }
    }
}

fn compiled(spec: &Value) -> Option<Compiled> {
    let object = json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec});
    compile_admin_policy(&AdminPolicyFacts::parse(&object.to_string()).unwrap(), &Everywhere(vec![80, 8080]))
}

#[test]
fn rules_keep_their_action_and_index() {
    let compiled = compiled(&json!({"priority": 5, "subject": {"namespaces": {"matchLabels": {"team": "blue"}}},
        "ingress": [
            {"action": "Pass", "from": [{"namespaces": {"matchLabels": {"team": "red"}}}]},
            {"action": "Deny", "from": [{"namespaces": {}}]}],
        "egress": [{"action": "Allow", "to": [{"nodes": {}}, {"networks": ["10.0.0.0/8"]}]}]}))
    .unwrap();
    assert_eq!(&*compiled.target, "ports in namespaces team=blue; pods *");
    let said: Vec<(&str, usize, Action)> =
        compiled.clauses.iter().map(|clause| (clause.field.as_str(), clause.index, clause.action)).collect();
    assert_eq!(
        said,
        [
            ("spec.ingress[0]", 0, Action::Pass),
            ("spec.ingress[1]", 1, Action::Deny),
            ("spec.egress[0]", 0, Action::Allow)
        ]
    );
    let PeerMatch::AnyOf { sets, blocks } = &compiled.clauses[2].peers else { panic!("the rule has no peer sets") };
    assert_eq!((&*sets[0], blocks.len()), ("addresses in nodes *; pods *", 1));
}

#[test]
fn named_ports_are_resolved_at_the_destination() {
    let compiled = compiled(&json!({"priority": 5, "subject": {"namespaces": {}},
        "ingress": [{"action": "Deny", "from": [{"namespaces": {}}], "ports": [{"namedPort": "http"}]}],
        "egress": [{"action": "Deny", "to": [{"namespaces": {}}], "ports": [{"namedPort": "http"}]}]}))
    .unwrap();
    let said: Vec<(String, String)> = compiled
        .clauses
        .iter()
        .map(|clause| {
            let PeerMatch::AnyOf { sets, .. } = &clause.peers else { panic!("the rule has no peer sets") };
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
fn a_never_valid_policy_compiles_to_nothing() {
    assert_eq!(compiled(&json!({"priority": 5, "subject": {}})), None);
}

fn settings() -> ClusterSettings {
    ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()])
}

/// A labelled node, a namespace, and a pod with a named port.
fn world_with(schema: &ovsdb::schema::DatabaseSchema, settings: ClusterSettings) -> TestCluster {
    let mut world = TestCluster::new(schema, settings);
    let node = json!({"metadata": {"annotations": {}, "labels": {"role": "edge"}}});
    world.api.create(ObjectKind::Node, "", "n1", node);
    world.annotate_node("n1", "shared", 10);
    world.api.create(ObjectKind::Namespace, "", "ns", json!({"metadata": {"labels": {"team": "blue"}}}));
    let spec = json!({"nodeName": "n1", "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]});
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec, "status": {"phase": "Running"}});
    world.api.create(ObjectKind::Pod, "ns", "web", pod);
    world.run_until_idle();
    world
}

fn world() -> TestCluster {
    world_with(&schema::schema(), settings())
}

fn key(name: &str) -> api::Key {
    let kind = if name == "default" { ObjectKind::BaselinePolicy } else { ObjectKind::AdminPolicy };
    (kind, String::new(), name.into())
}

fn put(world: &mut TestCluster, name: &str, spec: &Value) {
    let (kind, ..) = key(name);
    if !world.api.create(kind, "", name, json!({"metadata": {}, "spec": spec})) {
        world.api.change(&key(name), |object| object["spec"] = spec.clone());
    }
    world.run_until_idle();
}

/// A policy with an ingress rule for all pods on port 80 per action.
fn simple(priority: u16, actions: &[&str]) -> Value {
    let rules: Vec<Value> = actions
        .iter()
        .map(|action| json!({"action": action, "from": [{"namespaces": {}}], "ports": [{"portNumber": {"port": 80}}]}))
        .collect();
    json!({"priority": priority, "subject": {"namespaces": {}}, "ingress": rules})
}

/// The ACLs of a policy by field: direction, tier, priority, action and match.
fn rules(world: &TestCluster, name: &str) -> BTreeMap<String, String> {
    let rows = world.nb.rows();
    let of_policy = rows.iter().filter(|((table, _), values)| {
        let mark = |key: &str| values["external_ids"].get_str(key).unwrap_or_default();
        table == "ACL"
            && mark("k8s.ovn.org/owner-type").ends_with("AdminNetworkPolicy")
            && mark("k8s.ovn.org/name") == name
    });
    // The ACL for cut connections has no field.
    let found = of_policy.filter_map(|(_, values)| {
        let field = values["external_ids"].get_str("field")?;
        let words = ["direction", "tier", "priority", "action", "match"].map(|column| values[column].to_string());
        Some((field.to_string(), words.join(" ")))
    });
    found.collect()
}

fn priorities(world: &TestCluster, name: &str) -> Vec<i64> {
    let found = rules(world, name);
    found.values().map(|rule| rule.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

/// Status and message of the policy's condition.
fn condition(world: &TestCluster, name: &str) -> (String, String) {
    let object = &world.api.objects[&key(name)];
    let text = |key: &str| object["status"]["conditions"][0][key].as_str().unwrap_or_default().to_owned();
    assert_eq!(text("type"), "Ready-In-Zone-global");
    assert_eq!(
        object["status"]["conditions"][0]["observedGeneration"],
        object["metadata"]["generation"].as_i64().unwrap_or(0)
    );
    (text("status"), text("message"))
}

#[test]
fn rules_are_written_to_their_tiers() {
    let mut world = world();
    let spec = json!({"priority": 5, "subject": {"namespaces": {"matchLabels": {"team": "blue"}}},
        "ingress": [
            {"action": "Pass", "from": [{"namespaces": {"matchLabels": {"team": "red"}}}]},
            {"name": "no more", "action": "Deny", "from": [{"namespaces": {}}], "ports": [{"namedPort": "http"}]}],
        "egress": [{"action": "Allow", "to": [{"nodes": {"matchLabels": {"role": "edge"}}}, {"networks": ["10.0.0.0/8", "fd00::/8"]}]}]});
    put(&mut world, "first", &spec);
    let group = group_name("ports in namespaces team=blue; pods *");
    let with_port = group_name("ports in namespaces team=blue; pods *; port http/TCP=8080");
    let red = set_name("addresses in namespaces team=red; pods *", Family::V4);
    let all = set_name("addresses in namespaces *; pods *", Family::V4);
    let nodes = set_name("addresses in nodes role=edge; pods *", Family::V4);
    let expected = [
        (
            "spec.egress[0]",
            format!("from-lport 1 31871 allow-related inport == @{group} && ip4.dst == {{${nodes}, 10.0.0.0/8}}"),
        ),
        ("spec.ingress[0]", format!("to-lport 1 31871 pass outport == @{group} && ip4.src == ${red}")),
        (
            "spec.ingress[1]",
            format!("to-lport 1 31870 drop outport == @{with_port} && ip4.src == ${all} && tcp && tcp.dst == 8080"),
        ),
    ];
    assert_eq!(rules(&world, "first"), expected.map(|(field, rule)| (field.to_owned(), rule)).into());
    assert_eq!(condition(&world, "first"), ("True".into(), "the policy is in effect".into()));
    let addresses = |world: &TestCluster| {
        let rows = world.nb.rows();
        let set =
            rows.values().find(|values| values.get("name").is_some_and(|name| name.to_string() == nodes)).cloned();
        set.map(|values| values["addresses"].to_string()).unwrap()
    };
    assert_eq!(addresses(&world), "192.0.2.10");
    world.api.change(&(ObjectKind::Node, String::new(), "n1".into()), |node| node["metadata"]["labels"] = json!({}));
    world.run_until_idle();
    assert_ne!(addresses(&world), "192.0.2.10");

    let mut baseline = simple(0, &["Allow", "Deny"]);
    baseline.as_object_mut().unwrap().remove("priority");
    put(&mut world, "default", &baseline);
    let found: Vec<String> = rules(&world, "default").into_values().collect();
    assert!(
        found[0].starts_with("to-lport 3 32767 allow-related ") && found[1].starts_with("to-lport 3 32766 drop "),
        "{found:?}"
    );
    world.api.delete(&key("first"));
    world.api.delete(&key("default"));
    world.run_until_idle();
    let left = world.nb.rows();
    assert!(!left.values().any(|values| {
        let kind =
            values.get("external_ids").and_then(|marks| marks.get_str("k8s.ovn.org/owner-type")).unwrap_or_default();
        &*kind == "Selector" || kind.ends_with("Policy")
    }));
}

#[test]
fn equal_priorities_are_reported_and_the_older_policy_wins() {
    let mut world = world();
    put(&mut world, "older", &simple(7, &["Deny"]));
    put(&mut world, "a-younger", &simple(7, &["Allow"]));
    assert_eq!((priorities(&world, "older"), priorities(&world, "a-younger")), (vec![31807], vec![31806]));
    assert_eq!(condition(&world, "older").1, "the policy is in effect");
    let (status, message) = condition(&world, "a-younger");
    assert!(status == "True" && message.contains("AdminNetworkPolicy older also has priority 7"), "{message}");
    // The older policy needs more levels: both move in one transaction.
    let commits = world.nb.log.len();
    put(&mut world, "older", &simple(7, &["Deny", "Pass", "Deny"]));
    assert_eq!(
        (priorities(&world, "older"), priorities(&world, "a-younger")),
        (vec![31807, 31806, 31805], vec![31804])
    );
    assert_eq!(world.nb.log.len(), commits + 1);
    world.api.delete(&key("older"));
    world.run_until_idle();
    assert_eq!(priorities(&world, "a-younger"), [31807]);
    assert_eq!(condition(&world, "a-younger").1, "the policy is in effect");
}

#[test]
fn a_new_policy_moves_none_of_another_priority() {
    let mut world = world();
    put(&mut world, "last", &simple(1000, &["Deny"]));
    put(&mut world, "first", &simple(0, &["Deny"]));
    assert_eq!((priorities(&world, "first"), priorities(&world, "last")), (vec![32031], vec![31]));
    put(&mut world, "between", &simple(500, &["Allow", "Deny"]));
    assert_eq!((priorities(&world, "first"), priorities(&world, "last")), (vec![32031], vec![31]));
}

#[test]
fn an_invalid_update_keeps_the_last_valid_rules_across_a_restart() {
    let mut world = world();
    let broken = json!({"priority": 7, "subject": {"namespaces": {}}, "ingress": [{"action": "Deny", "from": []}]});
    put(&mut world, "p", &simple(7, &["Deny"]));
    put(&mut world, "below", &simple(7, &["Allow"]));
    let before = (rules(&world, "p"), rules(&world, "below"));
    put(&mut world, "p", &broken);
    for _ in 0..2 {
        assert_eq!((rules(&world, "p"), rules(&world, "below")), before);
        let why =
            "invalid policy: spec.ingress[0].from: needs at least one peer; the last valid version stays in effect";
        assert_eq!(condition(&world, "p"), ("False".into(), why.into()));
        world.restart();
        world.run_until_idle();
    }
    // New policies are placed around the kept ACLs.
    put(&mut world, "above", &simple(6, &["Deny"]));
    assert_eq!((rules(&world, "p"), rules(&world, "below")), before);
    // A recreated policy of the same name has no valid version.
    world.api.delete(&key("p"));
    put(&mut world, "p", &broken);
    assert_eq!(rules(&world, "p"), BTreeMap::new());
    let why = "invalid policy: spec.ingress[0].from: needs at least one peer; the policy is not in effect";
    assert_eq!(condition(&world, "p"), ("False".into(), why.into()));
    put(&mut world, "p", &simple(7, &["Deny"]));
    assert_eq!(condition(&world, "p").0, "True");
}

#[test]
fn without_acl_tiers_admin_policies_are_refused_and_network_policies_work() {
    let schema = schema::schema_of(lab::Suite::Bookworm);
    let mut settings = settings();
    settings.features = ovn_schema::northbound::DATABASE.check(&schema).features();
    let mut world = world_with(&schema, settings);
    world.api.create(ObjectKind::Policy, "ns", "deny", json!({"metadata": {}, "spec": {"podSelector": {}}}));
    put(&mut world, "p", &simple(7, &["Deny"]));
    assert_eq!(rules(&world, "p"), BTreeMap::new());
    let (status, message) = condition(&world, "p");
    assert!(status == "False" && message.contains("OVN 23.06 or newer is needed"), "{message}");
    let rows = world.nb.rows();
    let words = |words: &str| {
        let selector = |values: &ovsdb::operation::RowValues| {
            values.get("external_ids")?.get_str("k8s.ovn.org/name").map(|name| *name == *words)
        };
        rows.values().any(|values| selector(values) == Some(true))
    };
    assert!(words("ports in namespace ns; pods *") && words("ns/deny"));
    assert!(!words("ports in namespaces *; pods *"));
}
