//! Stories in which nothing goes wrong but what they are about, told to their end.
#![allow(clippy::unwrap_used, clippy::panic)]

// What the simulation is made of; not all of it is needed here.
#[allow(dead_code)]
#[path = "simulation/api.rs"]
mod api;
#[allow(dead_code)]
#[path = "simulation/controller.rs"]
mod controller;
#[allow(dead_code)]
#[path = "simulation/database.rs"]
mod database;
#[allow(dead_code)]
#[path = "simulation/faults.rs"]
mod faults;
#[allow(dead_code)]
#[path = "simulation/quiet.rs"]
mod quiet;
#[allow(dead_code)]
#[path = "simulation/rng.rs"]
mod rng;
#[path = "simulation/schema.rs"]
mod schema;

use serde_json::json;
use topology::ClusterSettings;
use topology::store::ObjectKind;

use crate::api::Key;
use crate::database::Chassis;
use crate::quiet::Quiet;

fn world(cluster: &str) -> Quiet {
    let services = vec!["172.30.0.0/16".parse().unwrap()];
    Quiet::new(&schema::schema(), ClusterSettings::new(vec![cluster.parse().unwrap()], services))
}

fn key(name: &str) -> Key {
    (ObjectKind::Node, String::new(), name.to_owned())
}

impl Quiet {
    fn add_node(&mut self, name: &str, last: u8) {
        self.api.create(ObjectKind::Node, "", name, json!({"metadata": {"annotations": {}}}));
        self.wire(name, "shared", last);
    }

    fn add_pod(&mut self, namespace: &str, name: &str, node: &str) {
        let object = json!({"metadata": {}, "spec": {"nodeName": node}, "status": {"phase": "Pending"}});
        self.api.create(ObjectKind::Pod, namespace, name, object);
    }

    /// The node's machine has another chassis from now on, and the one that it had is silent.
    fn change_chassis(&mut self, node: &str, from: &str, to: &str) {
        let (seen, nb_cfg) = (self.nb.log.len(), self.nb.nb_cfg());
        self.nb.chassis.get_mut(from).unwrap().stuck = true;
        self.nb.chassis.insert(to.into(), Chassis { nb_cfg, seen, stuck: false });
        self.set_chassis(node, to);
    }

    fn set_chassis(&mut self, node: &str, to: &str) {
        self.api.change(&key(node), |node| node["metadata"]["annotations"]["k8s.ovn.org/node-chassis-id"] = json!(to));
    }

    /// Goes on until nothing happens any more, also after what it wanted done outside.
    fn settle(&mut self) {
        self.rest();
        self.round();
        self.rest();
    }

    fn chassis(&self) -> Vec<&str> {
        self.nb.chassis.keys().map(String::as_str).collect()
    }

    fn resting(&self) -> usize {
        self.controller.engine.allocator().unwrap().quarantine().len()
    }
}

/// What is released becomes free though the former chassis answers no more: nobody has it, so it goes.
#[test]
fn a_chassis_that_its_node_has_no_more_is_removed() {
    let mut world = world("10.128.0.0/22/26");
    world.api.create(ObjectKind::Node, "", "n1", json!({"metadata": {"annotations": {}}}));
    world.add_node("n2", 12);
    world.add_pod("ns", "web", "n2");
    world.settle();
    // One that appears takes nobody's place.
    world.wire("n1", "shared", 11);
    world.settle();
    assert_eq!(world.chassis(), ["chassis-n1", "chassis-n2"]);

    world.change_chassis("n1", "chassis-n1", "second");
    world.api.delete(&(ObjectKind::Pod, "ns".into(), "web".into()));
    world.settle();
    assert_eq!((world.chassis(), world.resting()), (vec!["chassis-n2", "second"], 0));

    // While nobody leads: the rows tell which one it was.
    world.change_chassis("n1", "second", "third");
    world.restart();
    world.settle();
    assert_eq!(world.chassis(), ["chassis-n2", "third"]);

    // Back again before its time is over.
    world.change_chassis("n1", "third", "fourth");
    world.round();
    world.set_chassis("n1", "third");
    world.settle();
    assert_eq!(world.chassis(), ["chassis-n2", "third"]);

    // An annotation that is taken away says nothing of another machine.
    world.set_chassis("n1", "");
    world.settle();
    assert_eq!(world.chassis(), ["chassis-n2", "third"]);
}

/// How long a node has owed an answer is known though others are asked and answered meanwhile.
#[test]
fn a_node_that_does_not_answer_is_seen() {
    let mut world = world("10.128.0.0/22/26");
    world.add_node("n1", 11);
    world.add_node("n2", 12);
    world.add_pod("ns", "p0", "n2");
    world.settle();
    assert_eq!(world.controller.engine.unanswered_since(), None);

    world.nb.chassis.get_mut("chassis-n1").unwrap().stuck = true;
    let mut since = Vec::new();
    let before = world.nb.nb_cfg();
    for number in 1..=5 {
        world.add_pod("ns", &format!("p{number}"), "n2");
        for _ in 0..5 {
            world.round();
        }
        since.push(world.controller.engine.unanswered_since());
    }
    assert!(world.nb.nb_cfg() > before + 1, "others were asked");
    assert!(since[0].is_some() && since.iter().all(|one| *one == since[0]), "{since:?}");

    // Whoever does not work owes nothing.
    let condition = json!([{"type": "Ready", "status": "Unknown"}]);
    world.api.change(&key("n1"), |node| node["status"]["conditions"] = condition);
    world.round();
    assert_eq!(world.controller.engine.unanswered_since(), None);

    let condition = json!([{"type": "Ready", "status": "True"}]);
    world.api.change(&key("n1"), |node| node["status"]["conditions"] = condition);
    world.nb.chassis.get_mut("chassis-n1").unwrap().stuck = false;
    world.settle();
    assert_eq!(world.controller.engine.unanswered_since(), None);
}

/// More nodes than a transaction holds: whoever takes over looks at them in several, and finds all as it should be.
#[test]
fn a_restart_over_many_nodes_writes_its_sequence_value_only() {
    let mut world = world("10.128.0.0/14/23");
    for number in 0..450 {
        world.add_node(&format!("n{number}"), u8::try_from(number % 250).unwrap());
    }
    for number in 0..500 {
        world.add_pod(&format!("ns{}", number % 7), &format!("p{number}"), &format!("n{}", number % 450));
    }
    world.settle();
    assert_eq!(world.controller.engine.parked().count(), 0);
    assert_eq!(world.controller.engine.allocator().unwrap().subnet_counts(false).0, 450);
    assert_eq!(
        world.nb.rows().keys().filter(|(table, _)| table == "Logical_Switch_Port").count(),
        1 + 1 + 450 * 5 + 500
    );
    // With batches of 60, of 200, and of 200 once more.
    for _ in 0..3 {
        let (commits, rows) = (world.nb.log.len(), world.nb.rows());
        world.restart();
        world.settle();
        assert_eq!(world.nb.log.len(), commits + 1);
        let mut now = world.nb.rows();
        now.retain(|key, values| rows.get(key) != Some(values));
        assert!(now.keys().all(|(table, _)| table == "NB_Global"), "{now:?}");
    }
}
