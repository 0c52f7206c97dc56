//! Adoption of an OVN-Kubernetes (Go) database: in one transaction, and no row is removed before its replacement exists.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use objects::ObjectKind;
use ovsdb::datum::{Atom, Datum};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;
use serde_json::json;
use topology::adopt::GO_CONTROLLER;
use topology::engine::Next;
use topology::identity::Owner;
use topology::release::release;
use topology::{ClusterSettings, Effect, Engine};

use crate::support::api::{KINDS, Watches};
use crate::support::controller::MAX_STEPS;
use crate::support::database::{Follower, Nb};
use crate::support::schema;
use crate::support::test_cluster::TestCluster;

const POLICED: [&str; 9] =
    ["arp", "arp-resolve", "bfd", "event-elb", "icmp4-error", "icmp6-error", "reject", "svc-monitor", "tcp-reset"];

/// A node, two pods, a Service with a node port, and a policy; with their allocation annotations.
fn objects() -> TestCluster {
    let settings =
        ClusterSettings::new(vec!["10.128.0.0/22/26".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()]);
    let mut world = TestCluster::new(&schema::schema(), settings);
    world.api.create(ObjectKind::Node, "", "n1", json!({"metadata": {"annotations": {}}}));
    world.annotate_node("n1", "shared", 11);
    world.api.create(ObjectKind::Namespace, "", "ns", json!({"metadata": {}}));
    for name in ["web", "client"] {
        let pod =
            json!({"metadata": {"labels": {"app": name}}, "spec": {"nodeName": "n1"}, "status": {"phase": "Pending"}});
        world.api.create(ObjectKind::Pod, "ns", name, pod);
        world.run_until_idle();
    }
    let spec = json!({"type": "NodePort", "clusterIP": "172.30.0.7", "ports": [{"port": 80, "nodePort": 30080}]});
    world.api.create(ObjectKind::Service, "ns", "web", json!({"metadata": {}, "spec": spec}));
    let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "ports": [{"port": 8080}], "endpoints": [{"addresses": ["10.128.0.3"], "nodeName": "n1"}]});
    world.api.create(ObjectKind::EndpointSlice, "ns", "web", slice);
    let peers = json!([{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}]);
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": peers});
    world.api.create(ObjectKind::Policy, "ns", "only", json!({"metadata": {}, "spec": spec}));
    world.run_until_idle();
    world
}

/// UUIDs of rows that another client created.
fn uuid(number: u8) -> Uuid {
    let mut bytes = [0x11; 16];
    bytes[6] = 0x41;
    bytes[15] = number;
    Uuid::from_bytes(bytes)
}

fn uuids(numbers: impl IntoIterator<Item = u8>) -> Datum {
    Datum::set(numbers.into_iter().map(|number| Atom::Uuid(uuid(number))))
}

fn marked(row: Row, controller: &str, kind: &str, name: &str, more: &[(&str, &str)]) -> Row {
    let own =
        [("k8s.ovn.org/owner-controller", controller), ("k8s.ovn.org/owner-type", kind), ("k8s.ovn.org/name", name)];
    row.map("external_ids", own.into_iter().chain(more.iter().copied()))
}

fn rule(matching: &str, priority: i64, action: &str) -> Row {
    let row = Row::new().text("direction", "to-lport").text("match", matching).text("action", action);
    row.set("priority", Atom::Integer(priority)).set("tier", Atom::Integer(2))
}

/// The relevant rows of the Go controller for these objects, and rows of a third controller.
fn go_database(world: &TestCluster) -> Nb {
    let mut nb = Nb::new(&schema::schema(), 1);
    let mut rows = Transaction::new();
    // Nine meters share one band.
    for (number, rate) in [(1, 25), (2, 20)] {
        let band = Row::new().text("action", "drop").set("rate", Atom::Integer(rate));
        rows.insert_with_uuid("Meter_Band", uuid(number), band);
    }
    let meters = POLICED.iter().map(|name| (format!("{name}-rate-limiter"), 1)).chain([("acl-logging".to_owned(), 2)]);
    for ((name, band), number) in meters.zip(10..) {
        let meter = Row::new().text("name", &name).text("unit", "pktps").set("bands", uuids([band]));
        rows.insert_with_uuid("Meter", uuid(number), meter.set("fair", Atom::Boolean(true)));
    }
    let route = |prefix: &str| Row::new().text("ip_prefix", prefix).text("nexthop", "100.64.0.9");
    rows.insert_with_uuid("Logical_Router_Static_Route", uuid(30), route("10.99.0.0/24"));
    let foreign = marked(route("198.51.100.0/24"), "tenant-network-controller", "Tenant", "t", &[]);
    rows.insert_with_uuid("Logical_Router_Static_Route", uuid(31), foreign);
    let router = Row::new().text("name", "ovn_cluster_router").set("static_routes", uuids([30, 31]));
    rows.insert_with_uuid("Logical_Router", uuid(32), router);
    for (number, name, words) in
        [(33, "web", "0a:58:0a:80:00:03 10.128.0.3"), (34, "client", "0a:58:0a:80:00:04 10.128.0.4")]
    {
        let port = Row::new().text("name", &format!("ns_{name}")).text("addresses", words);
        let port = port.map("external_ids", [("namespace", "ns"), ("pod", "true")]);
        let pod = &world.api.objects[&(ObjectKind::Pod, "ns".to_owned(), name.to_owned())];
        let port = port.map("options", [("iface-id-ver", pod["metadata"]["uid"].as_str().unwrap())]);
        rows.insert_with_uuid("Logical_Switch_Port", uuid(number), port);
    }
    rows.insert_with_uuid("Logical_Switch_Port", uuid(35), Row::new().text("name", "guest"));
    let balancer = |name: &str, vip: &str| {
        let marks = [("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", "ns/web")];
        Row::new()
            .text("name", name)
            .text("protocol", "tcp")
            .map("vips", [(vip, "10.128.0.3:8080")])
            .map("external_ids", marks)
    };
    rows.insert_with_uuid("Load_Balancer", uuid(40), balancer("Service_ns/web_TCP_cluster", "172.30.0.7:80"));
    let of_node = balancer("Service_ns/web_TCP_node_router+switch_n1", "192.0.2.11:30080");
    rows.insert_with_uuid("Load_Balancer", uuid(41), of_node);
    let group = Row::new().text("name", "clusterLBGroup").set("load_balancer", uuids([40]));
    rows.insert_with_uuid("Load_Balancer_Group", uuid(42), group);
    let tenant = marked(rule("ip4.src == 198.51.100.7", 500, "drop"), "tenant-network-controller", "Tenant", "t", &[]);
    rows.insert_with_uuid("ACL", uuid(50), tenant);
    let switch = Row::new().text("name", "n1").map("other_config", [("subnet", "10.128.0.0/26")]);
    let switch = switch.set("ports", uuids([33, 34, 35])).set("acls", uuids([50]));
    rows.insert_with_uuid("Logical_Switch", uuid(36), switch.set("load_balancer", uuids([41])));
    let direction = [("direction", "Ingress")];
    let deny = marked(rule("outport == @a100", 1000, "drop"), GO_CONTROLLER, "NetpolNamespace", "ns", &direction);
    rows.insert_with_uuid("ACL", uuid(51), deny);
    let closed = Row::new().text("name", "a100").set("ports", uuids([33])).set("acls", uuids([51]));
    rows.insert_with_uuid("Port_Group", uuid(60), marked(closed, GO_CONTROLLER, "NetpolNamespace", "ns", &direction));
    let allow = rule("ip4.src == {$a102} && outport == @a101", 1001, "allow-related");
    let allow = marked(allow.text("meter", "acl-logging"), GO_CONTROLLER, "NetworkPolicy", "ns:only", &direction);
    rows.insert_with_uuid("ACL", uuid(52), allow);
    let group = Row::new().text("name", "a101").set("ports", uuids([33])).set("acls", uuids([52]));
    rows.insert_with_uuid("Port_Group", uuid(61), marked(group, GO_CONTROLLER, "NetworkPolicy", "ns:only", &[]));
    let peers = Row::new().text("name", "a102").text("addresses", "10.128.0.4");
    rows.insert_with_uuid("Address_Set", uuid(62), marked(peers, GO_CONTROLLER, "PodSelector", "client", &[]));
    nb.apply(&rows).unwrap();
    nb
}

/// An adopting leader, and the database.
struct Adopting {
    engine: Engine,
    nb: Nb,
    follower: Follower,
    kept: Vec<String>,
}

impl Adopting {
    fn begin(world: &TestCluster, nb: Nb) -> Self {
        let mut follower = Follower::new(&nb);
        follower.follow(&nb, usize::MAX);
        let mut engine = Engine::new(world.settings.clone());
        for kind in KINDS {
            for observed in Watches::default().list(&world.api, kind) {
                engine.observe(observed, Duration::ZERO);
            }
        }
        engine.promote(&follower.snapshot(), true, Duration::ZERO).unwrap();
        Self { engine, nb, follower, kept: Vec::new() }
    }

    /// Commits the next transaction; one with the owner `refused` is rejected by the server. False if there is none.
    fn step(&mut self, refused: Option<&str>) -> bool {
        let next = self.engine.next(&self.follower.snapshot(), Duration::ZERO);
        let kept = self.engine.take_effects().into_iter().filter_map(|effect| match effect {
            Effect::LeftoversKept { waiting_for, .. } => Some(waiting_for),
            _ => None,
        });
        self.kept.extend(kept);
        match next {
            Next::Idle => return false,
            Next::Again => {}
            Next::Commit(transaction) => {
                let places = 0..transaction.operations().len();
                let owners: BTreeSet<String> =
                    places.filter_map(|place| transaction.owner_of(place)).map(ToString::to_string).collect();
                if let Some(owner) = refused.filter(|refused| owners.contains(*refused)) {
                    self.engine.refused(Some(owner), "no", Duration::ZERO);
                } else {
                    self.nb.apply(&transaction).unwrap();
                    self.follower.follow(&self.nb, usize::MAX);
                    self.engine.committed(&self.follower.snapshot(), Duration::ZERO);
                }
            }
        }
        true
    }

    fn run(&mut self, refused: Option<&str>) {
        for _ in 0..MAX_STEPS {
            if !self.step(refused) {
                return;
            }
        }
        panic!("the engine is not idle after {MAX_STEPS} steps");
    }

    /// The rows that other clients created, by the number in their UUID.
    fn foreign(&self) -> BTreeMap<u8, ovsdb::operation::RowValues> {
        let rows = self.nb.rows().into_iter();
        let foreign = rows.filter(|((_, id), _)| id.as_bytes()[..6] == uuid(0).as_bytes()[..6]);
        foreign.map(|((_, id), values)| (id.as_bytes()[15], values)).collect()
    }

    fn numbers(&self) -> Vec<u8> {
        self.foreign().into_keys().collect()
    }
}

/// Adopted rows keep their UUIDs (the shared band goes to one meter), the third controller's rows stay, the rest is removed.
fn adopted() -> Vec<u8> {
    [1].into_iter().chain(10..19).chain([31, 32, 33, 34, 35, 36, 40, 42, 50]).collect()
}

/// The server checks set sizes after each mutation: a meter must not lose the shared band before it gets its own.
#[test]
fn meters_that_share_a_band_are_adopted_in_one_transaction() {
    let world = objects();
    let mut leader = Adopting::begin(&world, go_database(&world));
    let before = leader.foreign();
    assert!(leader.step(None));
    assert_eq!(leader.numbers(), adopted());
    leader.run(None);
    assert_eq!(leader.numbers(), adopted());
    let after = leader.foreign();
    for number in [31, 35, 50] {
        assert_eq!(before[&number], after[&number]);
    }
    let parked: Vec<_> = leader.engine.parked().collect();
    assert!(parked.is_empty() && leader.kept.is_empty(), "{parked:?} {:?}", leader.kept);
    // The next controller writes nothing.
    let Adopting { nb, .. } = leader;
    let rows = nb.rows();
    let mut next = Adopting::begin(&world, nb);
    next.run(None);
    assert_eq!(next.nb.rows(), rows);
}

/// Load balancers, ACLs, groups and sets stay while the object that replaces them is parked.
#[test]
fn rows_stay_until_their_replacement_exists() {
    let policy_rows = [51, 52, 60, 61, 62];
    let all: Vec<u8> = [41].into_iter().chain(policy_rows).collect();
    for (owner, stay) in [
        ("cluster", all.as_slice()),
        ("node n1", [41].as_slice()),
        ("network policy ns/only", policy_rows.as_slice()),
        ("pod ns/web", policy_rows.as_slice()),
        ("service ns/web", [41].as_slice()),
    ] {
        let world = objects();
        let mut leader = Adopting::begin(&world, go_database(&world));
        let before = leader.foreign();
        leader.run(Some(owner));
        let after = leader.foreign();
        for number in stay {
            assert_eq!(before.get(number), after.get(number), "{owner} is parked; row {number}");
        }
        let gone: Vec<&u8> = all.iter().filter(|number| !stay.contains(number)).collect();
        assert!(gone.iter().all(|number| !after.contains_key(number)), "{owner}: {gone:?} in {:?}", leader.numbers());
        assert!(leader.kept.iter().any(|kept| kept.contains(owner)), "{owner}: {:?}", leader.kept);
        let parked: BTreeSet<Owner> = leader.engine.parked().map(|(owner, _)| owner.clone()).collect();
        assert!(parked.iter().any(|parked| parked.to_string() == owner), "{parked:?}");
        leader.engine.drifted(parked, BTreeSet::new(), Duration::ZERO);
        leader.run(None);
        assert_eq!(leader.numbers(), adopted(), "after {owner}");
    }
}

/// Afterwards no row of ovnkube is left.
#[test]
fn release_waits_until_the_other_controller_has_replacements() {
    let mut world = objects();
    let snapshot = |nb: &Nb| {
        let mut follower = Follower::new(nb);
        follower.follow(nb, usize::MAX);
        follower.snapshot()
    };
    let unreplaced: Vec<String> = release(&snapshot(&world.nb)).unreplaced.into_iter().collect();
    let expected = ["cluster", "network policy ns/only", "node n1", "service ns/web"];
    assert_eq!(unreplaced, expected);

    let port = |world: &TestCluster, name: &str| {
        let rows = world.nb.rows();
        let name = Datum::from(Atom::String(name.into()));
        rows.iter().find(|(_, values)| values.get("name") == Some(&name)).map(|((_, uuid), _)| *uuid).unwrap()
    };
    let (web, switch) = (Atom::Uuid(port(&world, "ns_web")), port(&world, "n1"));
    let direction = [("direction", "Ingress")];
    let group =
        |name: &str, acls: Datum, ports: Datum| Row::new().text("name", name).set("acls", acls).set("ports", ports);
    let mut rows = Transaction::new();
    let rules = [
        (70, "NetpolDefault", "allow-hairpinning", rule("ip4.src == 169.254.169.5", 1001, "allow-related")),
        (71, "NetpolNode", "n1", rule("ip4.src==10.128.0.2", 1001, "allow-related")),
        (72, "NetpolNamespace", "ns", rule("outport == @a100", 1000, "drop")),
        (73, "NetworkPolicy", "ns:only", rule("ip4.src == {$a102} && outport == @a101", 1001, "allow-related")),
    ];
    for (number, kind, name, row) in rules {
        rows.insert_with_uuid("ACL", uuid(number), marked(row, GO_CONTROLLER, kind, name, &direction));
    }
    let insert = |number| ovsdb::operation::Mutation::new("acls", ovsdb::operation::Mutator::Insert, uuids([number]));
    rows.mutate("Logical_Switch", vec![ovsdb::operation::Condition::uuid(switch)], vec![insert(71)]);
    rows.insert_with_uuid("Port_Group", uuid(80), group("a99", uuids([70]), Datum::set([])));
    let none = || Datum::set([]);
    let closed = marked(group("a100", uuids([72]), none()), GO_CONTROLLER, "NetpolNamespace", "ns", &direction);
    rows.insert_with_uuid("Port_Group", uuid(81), closed);
    let only = marked(group("a101", uuids([73]), none()), GO_CONTROLLER, "NetworkPolicy", "ns:only", &[]);
    rows.insert_with_uuid("Port_Group", uuid(82), only);
    let peers = marked(Row::new().text("name", "a102"), GO_CONTROLLER, "PodSelector", "client", &[]);
    rows.insert_with_uuid("Address_Set", uuid(83), peers);
    let marks = [("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", "ns/web")];
    let balancer = Row::new().text("name", "Service_ns/web_TCP_node_router+switch_n1").map("external_ids", marks);
    rows.insert_with_uuid("Load_Balancer", uuid(84), balancer);
    world.nb.apply(&rows).unwrap();
    // Its groups exist but are empty: the policy would have no effect.
    let unreplaced: Vec<String> = release(&snapshot(&world.nb)).unreplaced.into_iter().collect();
    assert_eq!(unreplaced, ["network policy ns/only"]);
    let mut rows = Transaction::new();
    let by_uuid = |number| vec![ovsdb::operation::Condition::uuid(uuid(number))];
    for number in [81, 82] {
        rows.update("Port_Group", by_uuid(number), Row::new().set("ports", web.clone()));
    }
    world.nb.apply(&rows).unwrap();
    // Its set is empty: allowed peers would be cut off.
    assert_eq!(release(&snapshot(&world.nb)).unreplaced.len(), 1);
    let mut rows = Transaction::new();
    rows.update("Address_Set", by_uuid(83), Row::new().text("addresses", "10.128.0.4"));
    world.nb.apply(&rows).unwrap();
    let ready = release(&snapshot(&world.nb));
    assert!(ready.unreplaced.is_empty(), "{:?}", ready.unreplaced);
    // Rules that set marks are removed before the rule that clears them.
    world.nb.apply(&ready.transaction).unwrap();
    let count = |nb: &Nb, what: &str| nb.rows().values().filter(|values| format!("{values:?}").contains(what)).count();
    assert_eq!((count(&world.nb, "ct_mark.force_snat"), count(&world.nb, "pkt.mark == 1100")), (0, 1));
    world.nb.apply(&ready.last).unwrap();
    let again = release(&snapshot(&world.nb));
    // Load_Balancer_Group and Static_MAC_Binding have no external_ids and are left as they are.
    assert!(again.removed.is_empty() && again.handed_over.is_empty(), "{again:?}");
    let ours: Vec<_> =
        world.nb.rows().into_iter().filter(|(_, values)| format!("{values:?}").contains("ovnkube\"")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}
