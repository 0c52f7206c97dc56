use super::*;
use crate::datum::{Atom, Datum};
use crate::read::Shared;
use crate::schema::DatabaseSchema;
use crate::update::read_updates;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

fn schemas() -> Vec<Arc<TableSchema>> {
    let json = json!({"name": "T", "tables": {"Port": {"indexes": [["name"]], "columns": {
        "name": {"type": "string"},
        "up": {"type": {"key": "boolean", "min": 0, "max": 1}},
        "tags": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
        "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}}}});
    DatabaseSchema::parse(&json).unwrap().tables.into_values().map(Arc::new).collect()
}

fn replica() -> Replica {
    let schemas = schemas();
    let by_namespace = IndexKey::map_key(&schemas[0], "ids", "namespace").unwrap();
    Replica::new(&schemas, &[(0, by_namespace)])
}

/// Applies updates and returns the changes.
fn apply(replica: &mut Replica, updates: Vec<TableUpdate>) -> Result<Vec<Change>, OutOfSync> {
    let mut changes = Vec::new();
    replica.apply(updates, &mut changes).map(|()| changes)
}

/// Applies a dump and returns the changes.
fn replace(replica: &mut Replica, dump: Vec<TableUpdate>) -> Result<Vec<Change>, OutOfSync> {
    let mut changes = Vec::new();
    replica.replace(dump, &mut changes).map(|()| changes)
}

fn updates(json: &serde_json::Value) -> Vec<TableUpdate> {
    read_updates(&json.to_string(), &schemas(), &mut Shared::new()).unwrap()
}

fn uuid(n: u8) -> Uuid {
    Uuid::from_bytes([n; 16])
}

// By value: it reads better where it is called.
#[allow(clippy::needless_pass_by_value)]
fn one(n: u8, what: serde_json::Value) -> Vec<TableUpdate> {
    updates(&json!({"Port": {uuid(n).to_string(): what}}))
}

#[test]
fn changes_have_the_row_before_and_after() {
    let mut replica = replica();
    let changes =
        apply(&mut replica, one(1, json!({"insert": {"name": "a", "tags": ["set", [1, 2]], "up": true}}))).unwrap();
    assert!(changes[0].before.is_none());
    let held = replica.snapshot();
    let changes = apply(&mut replica, one(1, json!({"modify": {"tags": ["set", [2, 3]], "up": ["set", []]}}))).unwrap();
    assert_eq!((changes[0].before.clone(), changes.len()), (held.table("Port").unwrap().row(uuid(1)).cloned(), 1));
    let now = replica.snapshot();
    let view = now.table("Port").unwrap().get(uuid(1)).unwrap();
    assert_eq!(*view.get("tags").unwrap(), Datum::set([1, 3].map(Atom::Integer)));
    assert_eq!(view.boolean("up"), None);
    assert_eq!(view.text("name").unwrap(), "a");
    // An older snapshot is unchanged.
    assert_eq!(held.table("Port").unwrap().get(uuid(1)).unwrap().boolean("up"), Some(true));
    assert_eq!(apply(&mut replica, one(1, json!({"delete": null}))).unwrap()[0].after, None);
    assert!(apply(&mut replica, one(1, json!({"delete": null}))).unwrap().is_empty());
    assert!(replica.snapshot().table("Port").unwrap().is_empty());
}

#[test]
fn modifying_an_unknown_row_is_an_error() {
    let error = apply(&mut replica(), one(1, json!({"modify": {"name": "b"}}))).unwrap_err();
    assert!(error.to_string().contains("Port"), "{error}");
}

#[test]
fn a_new_dump_reports_only_differences() {
    let mut replica = replica();
    let row = |name: &str| json!({"initial": {"name": name}});
    let dump = |rows: &[(u8, &str)]| {
        let rows: BTreeMap<String, serde_json::Value> =
            rows.iter().map(|(n, name)| (uuid(*n).to_string(), row(name))).collect();
        updates(&json!({"Port": rows}))
    };
    assert_eq!(replace(&mut replica, dump(&[(1, "a"), (2, "b"), (3, "c")])).unwrap().len(), 3);
    assert!(replace(&mut replica, dump(&[(1, "a"), (2, "b"), (3, "c")])).unwrap().is_empty());
    let changes = replace(&mut replica, dump(&[(1, "a"), (2, "x"), (4, "d")])).unwrap();
    let seen: Vec<(Uuid, bool, bool)> =
        changes.iter().map(|c| (c.uuid, c.before.is_some(), c.after.is_some())).collect();
    assert_eq!(seen.len(), 3);
    assert!(
        seen.contains(&(uuid(3), true, false))
            && seen.contains(&(uuid(2), true, true))
            && seen.contains(&(uuid(4), false, true))
    );
    // A table that is not in the dump is empty.
    assert_eq!(replace(&mut replica, Vec::new()).unwrap().len(), 3);
}

#[test]
fn rows_are_found_by_column_and_by_key_of_a_map() {
    let mut replica = replica();
    for (n, namespace) in [(1, "blue"), (2, "blue"), (3, "red")] {
        let row = json!({"insert": {"name": format!("p{n}"), "ids": ["map", [["namespace", namespace]]]}});
        apply(&mut replica, one(n, row)).unwrap();
    }
    let snapshot = replica.snapshot();
    let table = snapshot.table("Port").unwrap();
    let string = |text: &str| [Datum::One(Atom::String(text.into()))];
    let by_name = IndexKey::columns(table.schema(), &["name"]).unwrap();
    let found = |key: &IndexKey, text: &str| table.find(key, &string(text)).map(|view| view.uuid).collect::<Vec<_>>();
    assert_eq!(found(&by_name, "p2"), [uuid(2)]);
    assert_eq!(found(&by_name, "p9"), []);
    let by_namespace = IndexKey::map_key(table.schema(), "ids", "namespace").unwrap();
    assert_eq!(found(&by_namespace, "blue"), [uuid(1), uuid(2)]);
    apply(&mut replica, one(1, json!({"modify": {"ids": ["map", [["namespace", "red"]]]}}))).unwrap();
    let snapshot = replica.snapshot();
    let table = snapshot.table("Port").unwrap();
    assert_eq!(table.find(&by_namespace, &string("red")).count(), 2);
    assert_eq!(table.find(&by_namespace, &string("blue")).count(), 1);
}

#[test]
fn a_slow_reader_sees_each_row_once() {
    let mut replica = replica();
    let mut pending = Pending::default();
    for round in 0..100 {
        let what = if round == 0 {
            json!({"insert": {"name": "a"}})
        } else {
            json!({"modify": {"name": format!("a{round}")}})
        };
        pending.add(&apply(&mut replica, one(1, what)).unwrap());
        pending.add(&apply(&mut replica, one(2, json!({"insert": {"name": "b"}}))).unwrap());
        pending.add(&apply(&mut replica, one(2, json!({"delete": null}))).unwrap());
    }
    assert_eq!(pending.len(), 2);
    let seen = pending.take(replica.snapshot());
    // The second row was inserted and deleted between two batches: no change.
    assert_eq!(seen.changes.len(), 1);
    assert_eq!(seen.changes[0].before, None);
    assert!(pending.is_empty());
}

proptest! {
    /// For any updates in any order, the replica equals a plain map, its indexes are correct, and a
    /// reader that only applies changes arrives at the same state.
    #[test]
    fn the_replica_equals_a_plain_map(steps in proptest::collection::vec((0_u8..8, 0_u8..4, 0_u8..3), 1..80)) {
        let mut replica = replica();
        let mut model: BTreeMap<Uuid, String> = BTreeMap::new();
        let mut follower: BTreeMap<Uuid, Row> = BTreeMap::new();
        let mut pending = Pending::default();
        for (n, name, action) in steps {
            let name = format!("name-{name}");
            let what = match (action, model.contains_key(&uuid(n))) {
                (0, _) => { model.remove(&uuid(n)); json!({"delete": null}) }
                (1, true) => { model.insert(uuid(n), name.clone()); json!({"modify": {"name": name}}) }
                _ => { model.insert(uuid(n), name.clone()); json!({"insert": {"name": name}}) }
            };
            pending.add(&apply(&mut replica, one(n, what)).unwrap());
            if action == 2 {
                for change in pending.take(replica.snapshot()).changes {
                    prop_assert_eq!(follower.get(&change.uuid), change.before.as_ref());
                    match change.after { Some(row) => { follower.insert(change.uuid, row); } None => { follower.remove(&change.uuid); } }
                }
            }
        }
        for change in pending.take(replica.snapshot()).changes {
            match change.after { Some(row) => { follower.insert(change.uuid, row); } None => { follower.remove(&change.uuid); } }
        }
        let snapshot = replica.snapshot();
        let table = snapshot.table("Port").unwrap();
        let own: BTreeMap<Uuid, String> = table.iter().map(|view| (view.uuid, view.text("name").unwrap())).collect();
        prop_assert_eq!(&own, &model);
        prop_assert_eq!(table.len(), model.len());
        prop_assert_eq!(follower.keys().collect::<Vec<_>>(), model.keys().collect::<Vec<_>>());
        let by_name = IndexKey::columns(table.schema(), &["name"]).unwrap();
        for name in 0..4 {
            let values = [Datum::One(Atom::String(format!("name-{name}").as_str().into()))];
            let found: Vec<Uuid> = table.find(&by_name, &values).map(|view| view.uuid).collect();
            let expected: Vec<Uuid> = model.iter().filter(|(_, own)| **own == format!("name-{name}")).map(|(uuid, _)| *uuid).collect();
            let mut sorted = found.clone();
            sorted.sort();
            prop_assert_eq!(sorted, expected);
        }
    }
}

#[test]
fn changes_before_a_failure_are_reported() {
    let mut replica = replica();
    let both = json!({"Port": {uuid(1).to_string(): {"insert": {"name": "a"}}, uuid(2).to_string(): {"modify": {"name": "b"}}}});
    let mut changes = Vec::new();
    assert!(replica.apply(updates(&both), &mut changes).is_err());
    assert_eq!(changes.len(), replica.snapshot().table("Port").unwrap().len());
}
