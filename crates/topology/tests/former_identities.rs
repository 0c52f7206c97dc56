//! Rows that an earlier version wrote, with `false` and `true` instead of `v4` and `v6` in their identities: a restart of this
//! version keeps them and writes nothing; new rows get the identity of today.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use objects::ObjectKind;
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;
use serde_json::json;
use topology::ClusterSettings;
use topology::identity::{STANDS_FOR, row_uuid};

use crate::support::api::Key;
use crate::support::schema;
use crate::support::test_cluster::TestCluster;

/// Table and key of the cluster's rows of each family.
const OF_CLUSTER: [(&str, &str); 4] =
    [("ACL", "hairpin to-lport"), ("ACL", "hairpin from-lport"), ("ACL", "unserved pods"), ("ACL", "unserved hosts")];
/// The same, of a node.
const OF_NODE: [(&str, &str); 6] = [
    ("Static_MAC_Binding", "masquerade next hop"),
    ("Logical_Router_Static_Route", "masquerade"),
    ("Logical_Router_Static_Route", "join"),
    ("Logical_Router_Static_Route", "pods out"),
    ("NAT", "snat of what is sent again"),
    ("ACL", "management acl"),
];
/// The endings of keys: of the earlier version, and of today.
const ENDINGS: [(&str, &str); 2] = [("false", "v4"), ("true", "v6")];

/// A dual-stack cluster with a node in each gateway mode.
fn cluster() -> TestCluster {
    let settings = ClusterSettings::new(
        ["10.128.0.0/22/26", "fd01::/60/64"].map(|cidr| cidr.parse().unwrap()).into(),
        ["172.30.0.0/16", "fd02::/112"].map(|cidr| cidr.parse().unwrap()).into(),
    );
    let mut world = TestCluster::new(&schema::schema(), settings);
    add_node(&mut world, "n1", "shared", 11);
    add_node(&mut world, "n2", "local", 12);
    let pod = json!({"metadata": {}, "spec": {"nodeName": "n1"}, "status": {"phase": "Pending"}});
    world.api.create(ObjectKind::Pod, "ns", "web", pod);
    world.run_until_idle();
    world
}

fn key(name: &str) -> Key {
    (ObjectKind::Node, String::new(), name.to_owned())
}

fn add_node(world: &mut TestCluster, name: &str, mode: &str, last: u8) {
    world.api.create(ObjectKind::Node, "", name, json!({"metadata": {"annotations": {}}}));
    world.annotate_node(name, mode, last);
    let addresses = [format!("192.0.2.{last}/24"), format!("2001:db8::{last}/64")];
    world.api.change(&key(name), |node| {
        let annotations = &mut node["metadata"]["annotations"];
        let gateway = json!({"default": {"mode": mode, "interface-id": format!("br-ex_{name}"),
            "mac-address": "52:54:00:00:00:01", "ip-addresses": addresses, "next-hops": ["192.0.2.1", "2001:db8::1"]}});
        annotations["k8s.ovn.org/l3-gateway-config"] = json!(gateway.to_string());
        annotations["k8s.ovn.org/host-cidrs"] = json!(json!(addresses).to_string());
    });
}

fn uid(world: &TestCluster, node: &str) -> String {
    world.api.objects[&key(node)]["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A row with its former identity and that of today.
struct Renamed {
    table: &'static str,
    former: Uuid,
    today: Uuid,
}

fn renamed(kind: &str, identity: &str, rows: &[(&'static str, &str)]) -> Vec<Renamed> {
    let both = |(table, key): &(&'static str, &str)| {
        let uuid = |ending: &str| row_uuid(table, kind, identity, &format!("{key} {ending}"));
        ENDINGS.map(|(former, today)| Renamed { table, former: uuid(former), today: uuid(today) })
    };
    rows.iter().flat_map(both).collect()
}

fn of_node(world: &TestCluster, node: &str) -> Vec<Renamed> {
    renamed("Node", &uid(world, node), &OF_NODE)
}

/// All such rows of the cluster.
fn all(world: &TestCluster) -> Vec<Renamed> {
    let nodes = ["n1", "n2"].iter().flat_map(|node| of_node(world, node));
    renamed("Cluster", "cluster", &OF_CLUSTER).into_iter().chain(nodes).collect()
}

/// Gives rows other UUIDs, as if another version had written them; with `stands_for`, as if it had adopted them.
fn give_uuids(world: &mut TestCluster, rows: &[Renamed], new: impl Fn(&Renamed) -> Uuid, stands_for: bool) {
    let known = world.nb.rows();
    let uuids: BTreeMap<Uuid, Uuid> = rows.iter().map(|row| (row.today, new(row))).collect();
    let mut transaction = Transaction::new();
    for row in rows {
        let mut values = known[&(row.table.to_owned(), row.today)].clone();
        if let Some(marks) = values.get_mut("external_ids").filter(|_| stands_for) {
            let mark = (Atom::String(STANDS_FOR.into()), Atom::String(row.former.to_string().as_str().into()));
            *marks = Datum::map(marks.pairs().iter().cloned().chain([mark]));
        }
        // The binding of a port and address exists once.
        transaction.delete(row.table, vec![Condition::uuid(row.today)]);
        transaction.insert_with_uuid(row.table, uuids[&row.today], Row(values));
    }
    for ((table, uuid), values) in &known {
        for (column, datum) in values {
            let held = datum.atoms().filter_map(|atom| match atom {
                Atom::Uuid(uuid) => uuids.get(&uuid).map(|new| (atom, Atom::Uuid(*new))),
                _ => None,
            });
            let (old, new): (Vec<Atom>, Vec<Atom>) = held.unzip();
            if !old.is_empty() {
                let mutations = vec![
                    Mutation::new(column, Mutator::Insert, Datum::set(new)),
                    Mutation::new(column, Mutator::Delete, Datum::set(old)),
                ];
                transaction.mutate(table, vec![Condition::uuid(*uuid)], mutations);
            }
        }
    }
    world.nb.change_externally(&transaction);
    for row in rows {
        let has = |uuid: Uuid| world.nb.rows().contains_key(&(row.table.to_owned(), uuid));
        assert!(has(uuids[&row.today]) && !has(row.today), "{}", row.table);
    }
}

/// Restarts the controller; every commit that follows must leave all rows but `NB_Global` alone.
fn restart_writes_nothing(world: &mut TestCluster) {
    let (before, commits) = (world.nb.rows(), world.nb.log.len());
    world.restart();
    world.run_until_idle();
    let changed = world.nb.log[commits..].iter().flatten().map(|change| change.table.as_str());
    assert_eq!(changed.filter(|table| *table != "NB_Global").collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(before == world.nb.rows());
}

#[test]
fn new_rows_have_the_identity_of_today() {
    let mut world = cluster();
    let rows = world.nb.rows();
    for row in all(&world) {
        assert!(rows.contains_key(&(row.table.to_owned(), row.today)), "{}", row.table);
        assert!(!rows.contains_key(&(row.table.to_owned(), row.former)), "{}", row.table);
    }
    restart_writes_nothing(&mut world);
}

#[test]
fn rows_of_the_earlier_version_stay_as_they_are() {
    let mut world = cluster();
    let rows = all(&world);
    assert_eq!(rows.len(), 2 * (OF_CLUSTER.len() + 2 * OF_NODE.len()));
    give_uuids(&mut world, &rows, |row| row.former, false);
    // Also later restarts.
    for _ in 0..2 {
        restart_writes_nothing(&mut world);
    }
}

#[test]
fn rows_that_the_earlier_version_adopted_stay_as_they_are() {
    let mut world = cluster();
    // A binding has no column for the mark: it is never adopted.
    let rows: Vec<Renamed> = all(&world).into_iter().filter(|row| row.table != "Static_MAC_Binding").collect();
    let adopted = |row: &Renamed| {
        let mut bytes = *row.former.as_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        Uuid::from_bytes(bytes)
    };
    give_uuids(&mut world, &rows, adopted, true);
    for _ in 0..2 {
        restart_writes_nothing(&mut world);
    }
}

#[test]
fn changed_and_new_nodes_of_a_migrated_database() {
    let mut world = cluster();
    let rows = all(&world);
    give_uuids(&mut world, &rows, |row| row.former, false);
    restart_writes_nothing(&mut world);
    let has = |world: &TestCluster, row: &Renamed, uuid| world.nb.rows().contains_key(&(row.table.to_owned(), uuid));
    // A change updates the rows in place: routes of the local mode have other next hops.
    world.annotate_node("n2", "shared", 12);
    world.run_until_idle();
    let before = of_node(&world, "n2");
    let v4 = before.iter().step_by(2);
    assert!(v4.clone().all(|row| has(&world, row, row.former) && !has(&world, row, row.today)));
    // A new node has rows of today; so has a recreated one, and its former rows go.
    add_node(&mut world, "n3", "shared", 13);
    world.api.delete(&key("n2"));
    world.run_until_idle();
    add_node(&mut world, "n2", "local", 12);
    world.run_until_idle();
    for node in ["n2", "n3"] {
        assert!(of_node(&world, node).iter().all(|row| has(&world, row, row.today) && !has(&world, row, row.former)));
    }
    assert!(before.iter().all(|row| !has(&world, row, row.former) && !has(&world, row, row.today)));
    // Of the nodes that stayed, nothing changed.
    assert!(of_node(&world, "n1").iter().all(|row| has(&world, row, row.former)));
    restart_writes_nothing(&mut world);
}
