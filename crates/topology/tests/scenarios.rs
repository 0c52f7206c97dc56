//! Single scenarios of the engine: drift, retries, acknowledgements, and refused nodes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::time::Duration;

use netmodel::Family;
use objects::ObjectKind;
use ovsdb::replica::Snapshot;
use serde_json::json;
use topology::engine::Next;
use topology::{ClusterSettings, Effect, Engine};

use crate::support::api::{KINDS, Key, Watches};
use crate::support::controller::MAX_STEPS;
use crate::support::database::{Chassis, Follower};
use crate::support::faults::Fault;
use crate::support::schema;
use crate::support::test_cluster::TestCluster;

fn world(cluster: &str) -> TestCluster {
    let services = vec!["172.30.0.0/16".parse().unwrap()];
    TestCluster::new(&schema::schema(), ClusterSettings::new(vec![cluster.parse().unwrap()], services))
}

fn key(name: &str) -> Key {
    (ObjectKind::Node, String::new(), name.to_owned())
}

impl TestCluster {
    fn add_node(&mut self, name: &str, last: u8) {
        self.api.create(ObjectKind::Node, "", name, json!({"metadata": {"annotations": {}}}));
        self.annotate_node(name, "shared", last);
    }

    fn add_pod(&mut self, namespace: &str, name: &str, node: &str) {
        let object = json!({"metadata": {}, "spec": {"nodeName": node}, "status": {"phase": "Pending"}});
        self.api.create(ObjectKind::Pod, namespace, name, object);
    }

    /// The node gets another chassis, and the former one stops acknowledging.
    fn change_chassis(&mut self, node: &str, from: &str, to: &str) {
        let (seen, nb_cfg) = (self.nb.log.len(), self.nb.nb_cfg());
        self.nb.chassis.get_mut(from).unwrap().stuck = true;
        self.nb.chassis.insert(to.into(), Chassis { nb_cfg, seen, stuck: false });
        self.set_chassis(node, to);
    }

    fn set_chassis(&mut self, node: &str, to: &str) {
        self.api.change(&key(node), |node| node["metadata"]["annotations"]["k8s.ovn.org/node-chassis-id"] = json!(to));
    }

    /// Runs until idle, also after effects outside the database.
    fn settle(&mut self) {
        self.run_until_idle();
        self.round();
        self.run_until_idle();
    }

    fn chassis(&self) -> Vec<&str> {
        self.nb.chassis.keys().map(String::as_str).collect()
    }

    fn quarantined(&self) -> usize {
        self.controller.engine.allocator().unwrap().quarantine().len()
    }
}

/// The operations of the leader's next transaction, without NB_Global.
fn operations(world: &mut TestCluster) -> Vec<Vec<ovsdb::operation::Operation>> {
    let mut follower = Follower::new(&world.nb);
    follower.follow(&world.nb, usize::MAX);
    let mut engine = Engine::new(world.settings.clone());
    for kind in KINDS {
        for observed in Watches::default().list(&world.api, kind) {
            engine.observe(observed, Duration::ZERO);
        }
    }
    engine.promote(&follower.snapshot(), false, Duration::ZERO).unwrap();
    let mut made = Vec::new();
    for _ in 0..MAX_STEPS {
        match engine.next(&follower.snapshot(), Duration::ZERO) {
            Next::Commit(transaction) => {
                let kept = transaction.operations().iter().filter(|operation| operation.table() != Some("NB_Global"));
                made.push(kept.cloned().collect());
                engine.abandoned();
                return made;
            }
            Next::Again => {}
            Next::Idle => return made,
        }
    }
    panic!("the engine is not idle after {MAX_STEPS} steps")
}

/// One operation on one row, with the changed keys only.
#[test]
fn one_endpoint_change_is_one_mutation() {
    let mut world = world("10.128.0.0/22/26");
    world.add_node("n1", 11);
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let spec = json!({"clusterIP": "172.30.0.7", "ports": ports});
    world.api.create(ObjectKind::Service, "ns", "web", json!({"metadata": {}, "spec": spec}));
    for (name, port) in [("a", 8080), ("b", 8081)] {
        let endpoints: Vec<_> = (10..20).map(|last| json!({"addresses": [format!("10.128.0.{last}")]})).collect();
        let labels = json!({"labels": {"kubernetes.io/service-name": "web"}});
        let slice = json!({"metadata": labels, "addressType": "IPv4", "ports": [{"name": name, "port": port}],
            "endpoints": endpoints});
        world.api.create(ObjectKind::EndpointSlice, "ns", name, slice);
    }
    world.settle();
    assert!(operations(&mut world).is_empty());
    let slice = (ObjectKind::EndpointSlice, "ns".to_owned(), "a".to_owned());
    world.api.change(&slice, |slice| slice["endpoints"][3]["conditions"] = json!({"ready": false}));
    let made = operations(&mut world);
    let [operations] = &made[..] else { panic!("{made:#?}") };
    let [ovsdb::operation::Operation::Mutate { table, mutations, .. }] = &operations[..] else {
        panic!("{operations:#?}")
    };
    assert_eq!((table.as_str(), mutations.len()), ("Load_Balancer", 2));
    assert!(mutations.iter().all(|mutation| mutation.column == "vips" && mutation.value.len() == 1), "{mutations:?}");
    assert!(mutations[1].value.get_str("172.30.0.7:80").is_some_and(|backends| backends.split(',').count() == 9));
}

/// Quarantine ends though the former chassis never acknowledges, because it is removed.
#[test]
fn a_chassis_that_no_node_uses_is_removed() {
    let mut world = world("10.128.0.0/22/26");
    world.api.create(ObjectKind::Node, "", "n1", json!({"metadata": {"annotations": {}}}));
    world.add_node("n2", 12);
    world.add_pod("ns", "web", "n2");
    world.settle();
    // A new chassis replaces none.
    world.annotate_node("n1", "shared", 11);
    world.settle();
    assert_eq!(world.chassis(), ["chassis-n1", "chassis-n2"]);

    world.change_chassis("n1", "chassis-n1", "second");
    world.api.delete(&(ObjectKind::Pod, "ns".into(), "web".into()));
    world.settle();
    assert_eq!((world.chassis(), world.quarantined()), (vec!["chassis-n2", "second"], 0));

    // While no controller leads: the former chassis follows from the rows.
    world.change_chassis("n1", "second", "third");
    world.restart();
    world.settle();
    assert_eq!(world.chassis(), ["chassis-n2", "third"]);

    // Changed back before the removal.
    world.change_chassis("n1", "third", "fourth");
    world.round();
    world.set_chassis("n1", "third");
    world.settle();
    assert_eq!(world.chassis(), ["chassis-n2", "third"]);

    // A removed annotation does not mean another chassis.
    world.set_chassis("n1", "");
    world.settle();
    assert_eq!(world.chassis(), ["chassis-n2", "third"]);
}

/// Failures before success.
const FAILURES: usize = 12;

impl TestCluster {
    /// Injects a fault [`FAILURES`] times; nothing else happens meanwhile.
    fn fail_repeatedly(&mut self, fault: Fault) {
        self.faults.always = Some(fault);
        for _ in 0..MAX_STEPS {
            self.round();
            if self.faults.count.get(&fault) >= Some(&FAILURES) {
                break;
            }
        }
        let count = self.faults.count.get(&fault).copied().unwrap_or_default();
        assert_eq!(count, FAILURES, "{fault:?}: not retried");
        self.faults.always = None;
    }
}

/// Though nothing else happens to the node.
#[test]
fn a_failed_condition_write_is_retried() {
    let mut world = world("10.128.0.0/14/23");
    world.add_node("n1", 11);
    world.settle();
    let unavailable =
        |world: &TestCluster| world.api.objects[&key("n1")]["status"]["conditions"][1]["status"] == "True";
    let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "True"}]);
    world.api.change(&key("n1"), |node| node["status"]["conditions"] = conditions);
    world.fail_repeatedly(Fault::NodeConditionFails);
    assert!(unavailable(&world));
    world.settle();
    assert!(!unavailable(&world));
}

/// Until then the node's subnet and ID stay in quarantine.
#[test]
fn a_failed_chassis_removal_is_retried() {
    let mut world = world("10.128.0.0/22/26");
    world.add_node("n1", 11);
    world.add_node("n2", 12);
    world.settle();
    world.nb.chassis.get_mut("chassis-n1").unwrap().stuck = true;
    world.api.delete(&key("n1"));
    world.fail_repeatedly(Fault::ChassisRemovalFails);
    assert_eq!(world.chassis(), ["chassis-n1", "chassis-n2"]);
    assert_ne!(world.quarantined(), 0);
    world.settle();
    assert_eq!((world.chassis(), world.quarantined()), (vec!["chassis-n2"], 0));
}

/// A recreated database counts `nb_cfg` from 0, while the chassis have higher values: released addresses stay in quarantine
/// until the chassis have acknowledged a higher value.
#[test]
fn nb_cfg_of_a_former_database_acknowledges_nothing() {
    let mut world = world("10.128.0.0/22/26");
    world.add_node("n1", 11);
    world.add_pod("ns", "web", "n1");
    world.settle();
    world.nb.chassis.get_mut("chassis-n1").unwrap().nb_cfg = 112;
    let mut world = world.with_empty_database(&schema::schema());
    world.nb.chassis.get_mut("chassis-n1").unwrap().stuck = true;
    for _ in 0..10 {
        world.round();
    }
    world.api.delete(&(ObjectKind::Pod, "ns".to_owned(), "web".to_owned()));
    for _ in 0..10 {
        world.round();
    }
    assert_eq!(world.quarantined(), 1);
    assert!(world.nb.nb_cfg() > 112, "{}", world.nb.nb_cfg());
    world.nb.chassis.get_mut("chassis-n1").unwrap().stuck = false;
    world.settle();
    assert_eq!(world.quarantined(), 0);
}

/// The lag is measured since the first missing acknowledgement, though others acknowledge meanwhile.
#[test]
fn a_node_that_does_not_acknowledge_is_detected() {
    let mut world = world("10.128.0.0/22/26");
    world.add_node("n1", 11);
    world.add_node("n2", 12);
    world.add_pod("ns", "p0", "n2");
    world.settle();
    assert_eq!(world.controller.engine.nb_cfg_unacknowledged_since(), None);

    world.nb.chassis.get_mut("chassis-n1").unwrap().stuck = true;
    let mut since = Vec::new();
    let before = world.nb.nb_cfg();
    for number in 1..=5 {
        world.add_pod("ns", &format!("p{number}"), "n2");
        for _ in 0..5 {
            world.round();
        }
        since.push(world.controller.engine.nb_cfg_unacknowledged_since());
    }
    assert!(world.nb.nb_cfg() > before + 1, "nb_cfg was not raised for others");
    assert!(since[0].is_some() && since.iter().all(|one| *one == since[0]), "{since:?}");

    // A node that is not ready is not awaited.
    let condition = json!([{"type": "Ready", "status": "Unknown"}]);
    world.api.change(&key("n1"), |node| node["status"]["conditions"] = condition);
    world.round();
    assert_eq!(world.controller.engine.nb_cfg_unacknowledged_since(), None);

    let condition = json!([{"type": "Ready", "status": "True"}]);
    world.api.change(&key("n1"), |node| node["status"]["conditions"] = condition);
    world.nb.chassis.get_mut("chassis-n1").unwrap().stuck = false;
    world.settle();
    assert_eq!(world.controller.engine.nb_cfg_unacknowledged_since(), None);
}

fn warnings(engine: &mut Engine) -> Vec<(String, &'static str)> {
    let warned = engine.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Warn { object, reason, .. } => Some((object.name.to_string(), reason)),
        Effect::Resolved { object, reason } => Some((format!("{} resolved", object.name), reason)),
        _ => None,
    });
    warned.collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A leading engine with the world's objects, without a simulated controller.
fn leading(world: &TestCluster) -> Engine {
    let mut engine = Engine::new(world.settings.clone());
    for kind in KINDS {
        list(&mut engine, world, kind, seconds(0));
    }
    engine.promote(&snapshot(world), false, seconds(0)).unwrap();
    engine
}

fn snapshot(world: &TestCluster) -> Snapshot {
    let mut follower = Follower::new(&world.nb);
    follower.follow(&world.nb, usize::MAX);
    follower.snapshot()
}

fn list(engine: &mut Engine, world: &TestCluster, kind: ObjectKind, now: Duration) {
    for observed in Watches::default().list(&world.api, kind) {
        engine.observe(observed, now);
    }
}

fn work(engine: &mut Engine, world: &mut TestCluster, now: Duration) {
    for _ in 0..MAX_STEPS {
        match engine.next(&snapshot(world), now) {
            Next::Idle => return,
            Next::Again => {}
            Next::Commit(transaction) => {
                world.nb.apply(&transaction).unwrap();
                engine.committed(&snapshot(world), now);
            }
        }
    }
    panic!("the engine is not idle after {MAX_STEPS} steps")
}

/// Once, and again when the warning is resolved.
#[test]
fn a_pod_without_its_node_is_reported() {
    let mut world = world("10.128.0.0/22/26");
    world.add_node("n1", 11);
    world.add_pod("ns", "lost", "n2");
    world.add_pod("ns", "web", "n1");
    let mut engine = leading(&world);
    work(&mut engine, &mut world, seconds(1));
    assert_eq!(warnings(&mut engine), []);
    assert_eq!(engine.deadline(), Some(seconds(30)));
    engine.tick(seconds(30));
    engine.tick(seconds(90));
    assert_eq!(warnings(&mut engine), [("lost".into(), "NodeMissing")]);
    assert_eq!(engine.parked().count(), 0);
    world.add_node("n2", 12);
    list(&mut engine, &world, ObjectKind::Node, seconds(100));
    work(&mut engine, &mut world, seconds(100));
    assert_eq!(warnings(&mut engine), [("lost resolved".into(), "NodeMissing")]);
}

/// Only with the southbound database the controller knows which `nb_cfg` values were acknowledged.
#[test]
fn nb_cfg_is_not_raised_before_the_southbound_database_is_read() {
    let mut world = world("10.128.0.0/22/26");
    world.add_node("n1", 11);
    world.add_pod("ns", "web", "n1");
    world.settle();
    let before = world.nb.nb_cfg();
    let mut engine = leading(&world);
    world.api.delete(&(ObjectKind::Pod, "ns".to_owned(), "web".to_owned()));
    list(&mut engine, &world, ObjectKind::Pod, seconds(1));
    work(&mut engine, &mut world, seconds(1));
    assert_eq!(world.nb.nb_cfg(), before);
    engine.progress(world.nb.progress(), world.nb.southbound, seconds(2));
    work(&mut engine, &mut world, seconds(2));
    assert!(world.nb.nb_cfg() > before);
}

/// The host would receive its router's packets.
#[test]
fn a_management_port_with_the_routers_mac_is_refused() {
    let mut world = world("10.128.0.0/22/26");
    world.add_node("n1", 11);
    world.api.change(&key("n1"), |node| {
        let annotations = &mut node["metadata"]["annotations"];
        annotations["k8s.ovn.org/node-subnets"] = json!(r#"{"default":["10.128.0.64/26"]}"#);
        annotations["k8s.ovn.org/node-mgmt-port-mac-addresses"] = json!(r#"{"default":"0a:58:0a:80:00:41"}"#);
    });
    let mut engine = leading(&world);
    work(&mut engine, &mut world, seconds(1));
    let effects = engine.take_effects();
    let warned = effects.iter().find_map(|effect| match effect {
        Effect::Warn { reason, message, .. } => Some((*reason, message.as_str())),
        _ => None,
    });
    let (reason, message) = warned.unwrap();
    assert_eq!(reason, "NodeAnnotationRefused");
    for words in ["node-mgmt-port-mac-addresses: 0a:58:0a:80:00:41", "rtos-n1", "remove it"] {
        assert!(message.contains(words), "{message}");
    }
    assert!(effects.iter().any(|effect| matches!(effect, Effect::NodeNetwork { available: false, .. })));

    world.api.change(&key("n1"), |node| {
        node["metadata"]["annotations"]["k8s.ovn.org/node-mgmt-port-mac-addresses"] =
            json!(r#"{"default":"0a:58:0a:80:00:42"}"#);
    });
    list(&mut engine, &world, ObjectKind::Node, seconds(2));
    work(&mut engine, &mut world, seconds(2));
    assert_eq!(warnings(&mut engine), [("n1 resolved".into(), "NodeAnnotationRefused")]);
    assert_eq!(engine.parked().count(), 0);
}

/// More nodes than a batch has: the resync takes several batches.
#[test]
fn a_restart_over_many_nodes_writes_only_its_sequence_value() {
    let mut world = world("10.128.0.0/14/23");
    for number in 0..450 {
        world.add_node(&format!("n{number}"), u8::try_from(number % 250).unwrap());
    }
    for number in 0..500 {
        world.add_pod(&format!("ns{}", number % 7), &format!("p{number}"), &format!("n{}", number % 450));
    }
    world.settle();
    assert_eq!(world.controller.engine.parked().count(), 0);
    assert_eq!(world.controller.engine.allocator().unwrap().subnet_counts(Family::V4).0, 450);
    assert_eq!(
        world.nb.rows().keys().filter(|(table, _)| table == "Logical_Switch_Port").count(),
        1 + 1 + 450 * 5 + 500
    );
    // With batches of 3, of 200, and of 200 once more.
    for _ in 0..3 {
        let (commits, rows) = (world.nb.log.len(), world.nb.rows());
        world.restart();
        world.settle();
        assert_eq!(world.nb.log.len(), commits + 1);
        assert!(world.nb.rows() == rows);
    }
}

/// A controller with another cluster's subnets parks nodes and pods, and keeps their rows.
#[test]
fn wrong_cluster_subnets_park_nodes_and_keep_their_rows() {
    let mut world = world("10.128.0.0/14/23");
    world.add_node("n1", 11);
    world.add_pod("ns", "web", "n1");
    world.settle();
    let rows = world.nb.rows();
    let right = std::mem::replace(&mut world.settings.cluster, vec!["10.200.0.0/16/24".parse().unwrap()]);
    world.restart();
    world.add_node("n2", 12);
    world.settle();
    let parked: Vec<String> = world.controller.engine.parked().map(|(owner, _)| owner.to_string()).collect();
    assert!(parked.contains(&"node n1".to_owned()), "{parked:?}");
    let now = world.nb.rows();
    for (key, values) in rows.iter().filter(|((table, _), _)| table == "Logical_Switch_Port" || table == "NAT") {
        assert_eq!(now.get(key), Some(values), "{key:?}");
    }
    // Its node ID stays allocated.
    let number = |name: &str| world.controller.engine.allocator().unwrap().node(name).map(|node| node.id);
    assert_eq!((number("n1"), number("n2")), (None, Some(3)));

    world.settings.cluster = right;
    world.restart();
    world.settle();
    assert!(world.controller.engine.parked().all(|(owner, _)| owner.to_string() == "node n2"));
    assert_eq!(world.controller.engine.allocator().unwrap().pods().count(), 1);
}

/// A cloned machine reports another node's chassis: its own rows stay, and so does the other's chassis.
#[test]
fn a_node_cannot_claim_anothers_chassis() {
    let mut world = world("10.128.0.0/14/23");
    world.add_node("n1", 11);
    world.add_node("n2", 12);
    world.add_pod("ns", "web", "n2");
    world.settle();
    let rows = world.nb.rows();
    world.set_chassis("n2", "chassis-n1");
    world.settle();
    let parked: Vec<String> = world.controller.engine.parked().map(|(_, refusal)| refusal.message.clone()).collect();
    assert!(parked.iter().any(|why| why.contains("chassis-n1 is the chassis of node n1")), "{parked:?}");
    let mut now = world.nb.rows();
    now.retain(|key, values| rows.get(key) != Some(values));
    assert!(now.keys().all(|(table, _)| table == "NB_Global"), "{now:?}");
    assert_eq!(world.chassis(), ["chassis-n1", "chassis-n2"]);
    // Nor can an older node claim a younger one's: the claimant is refused, not the owner.
    world.set_chassis("n2", "chassis-n2");
    world.settle();
    assert_eq!(world.controller.engine.parked().count(), 0);
    world.set_chassis("n1", "chassis-n2");
    world.settle();
    let parked = |world: &TestCluster| -> Vec<String> {
        world.controller.engine.parked().map(|(owner, _)| owner.to_string()).collect()
    };
    assert_eq!(parked(&world), ["node n1"]);
    // Also by the next leader, which did not see the claim.
    world.restart();
    world.settle();
    assert_eq!(parked(&world), ["node n1"]);
    world.set_chassis("n1", "chassis-n1");
    world.settle();
    world.set_chassis("n2", "chassis-n1");
    world.settle();
    // The owner is deleted: the chassis is free.
    world.api.delete(&key("n1"));
    world.settle();
    assert_eq!(world.controller.engine.parked().count(), 0);
}
