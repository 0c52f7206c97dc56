//! Semantics of the real server by example. The differential test checks that they are still true.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Database;
use crate::datum::{Atom, Datum};
use crate::operation::{Condition, Function, Mutation, Mutator, Operation};
use crate::schema::DatabaseSchema;
use crate::transaction::{Row, Transaction};
use crate::uuid::Uuid;

fn database() -> Database {
    let schema = json!({"name": "Test", "tables": {
        "Parent": {"isRoot": true, "maxRows": 4, "indexes": [["name"]], "columns": {
            "name": {"type": "string"},
            "born": {"type": "string", "mutable": false},
            "age": {"type": {"key": {"type": "integer", "maxInteger": 120}, "min": 0, "max": 1}},
            "numbers": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
            "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
            "kids": {"type": {"key": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": "unlimited"}},
            "favourite": {"type": {"key": {"type": "uuid", "refTable": "Kid", "refType": "weak"},
                                   "min": 0, "max": 1}}}},
        "Club": {"isRoot": true, "columns": {
            "members": {"type": {"key": {"type": "uuid", "refTable": "Kid", "refType": "weak"}, "max": 5}}}},
        "Kid": {"columns": {
            "name": {"type": "string"},
            "holds": {"type": {"key": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": "unlimited"}}}}}});
    Database::new(DatabaseSchema::parse(&schema).unwrap())
}

fn uuid(number: u8) -> Uuid {
    Uuid::from_bytes([number; 16])
}

fn refer(numbers: &[u8]) -> Datum {
    Datum::set(numbers.iter().map(|number| Atom::Uuid(uuid(*number))))
}

fn transact<T>(database: &mut Database, write: impl FnOnce(&mut Transaction) -> T) -> Vec<Value> {
    let mut transaction = Transaction::new();
    write(&mut transaction);
    database.transact(transaction.operations())
}

/// Names of the errors of a reply, with their index.
fn errors(answer: &[Value]) -> Vec<(usize, &str)> {
    answer.iter().enumerate().filter_map(|(position, result)| Some((position, result["error"].as_str()?))).collect()
}

fn rows(database: &Database, table: &str) -> Vec<Uuid> {
    database.tables().filter(|(name, ..)| *name == table).map(|(_, uuid, _)| uuid).collect()
}

/// A parent with two kids, the first of which is the favourite.
fn family() -> Database {
    let mut database = database();
    let answer = transact(&mut database, |transaction| {
        let parent = Row::new().text("name", "p").set("kids", refer(&[2, 3])).set("favourite", refer(&[2]));
        transaction.insert_with_uuid("Parent", uuid(1), parent);
        transaction.insert_with_uuid("Kid", uuid(2), Row::new().text("name", "two"));
        transaction.insert_with_uuid("Kid", uuid(3), Row::new().text("name", "three"));
    });
    assert_eq!(errors(&answer), []);
    database
}

#[test]
fn a_reply_has_one_element_per_operation() {
    let mut database = family();
    let answer = transact(&mut database, |transaction| {
        transaction.comment("hello");
        transaction.insert_with_uuid("Parent", uuid(9), Row::new().text("name", "q"));
        transaction.select("Parent", vec![Condition::equals("name", "q")], &["name", "age"]);
        transaction.update("Parent", vec![], Row::new().text("nothing", ""));
        transaction.delete("Parent", vec![]);
    });
    assert_eq!(answer[0], json!({}));
    assert_eq!(answer[1], json!({"uuid": ["uuid", uuid(9).to_string()]}));
    assert_eq!(answer[2], json!({"rows": [{"name": "q", "age": ["set", []]}]}));
    assert_eq!((errors(&answer), &answer[4]), (vec![(3, "unknown column")], &Value::Null));
    assert_eq!((rows(&database, "Parent"), database.commits()), (vec![uuid(1)], 1));
}

#[test]
fn an_error_at_commit_comes_last_and_rolls_back() {
    let mut database = family();
    let before: Vec<_> = database.tables().map(|(_, uuid, row)| (uuid, row)).collect();
    for (write, error) in [
        (Row::new().text("name", "q").set("kids", refer(&[77])), "referential integrity violation"),
        (Row::new().text("name", "p"), "constraint violation"),
    ] {
        let answer = transact(&mut database, |transaction| transaction.insert("Parent", write));
        assert_eq!((answer.len(), errors(&answer)), (2, vec![(1, error)]));
    }
    let many = transact(&mut database, |transaction| {
        for name in ["a", "b", "c", "d"] {
            transaction.insert("Parent", Row::new().text("name", name));
        }
    });
    assert_eq!(errors(&many), [(4, "constraint violation")]);
    let held = transact(&mut database, |transaction| transaction.delete("Kid", vec![]));
    assert_eq!(errors(&held), [(1, "referential integrity violation")]);
    assert_eq!(database.tables().map(|(_, uuid, row)| (uuid, row)).collect::<Vec<_>>(), before);
}

#[test]
fn unreferenced_rows_are_removed_with_weak_references_to_them() {
    let mut database = family();
    let mut transaction = Transaction::new();
    let drop_two = vec![Mutation::new("kids", Mutator::Delete, refer(&[2]))];
    transaction.mutate("Parent", vec![], drop_two);
    let (answer, changes) = database.transact_with_changes(&BTreeSet::new(), transaction.operations());
    assert_eq!(answer, [json!({"count": 1})]);
    assert_eq!(rows(&database, "Kid"), [uuid(3)]);
    assert_eq!(database.row("Parent", uuid(1)).unwrap()["favourite"], Datum::Empty);
    let told: Vec<_> = changes.iter().map(|change| (change.table.as_str(), change.uuid)).collect();
    assert_eq!(told, [("Kid", uuid(2)), ("Parent", uuid(1))]);
    assert!(changes[0].after.is_none() && changes[1].before != changes[1].after);
}

#[test]
fn garbage_collection_is_transitive_but_keeps_cycles() {
    let mut database = family();
    let kid = |holds: &[u8]| Row::new().set("holds", refer(holds));
    let answer = transact(&mut database, |transaction| {
        transaction.insert_with_uuid("Kid", uuid(10), kid(&[11]));
        transaction.insert_with_uuid("Kid", uuid(11), kid(&[10]));
        transaction.insert_with_uuid("Kid", uuid(12), kid(&[12]));
        transaction.insert_with_uuid("Kid", uuid(13), kid(&[14]));
        transaction.insert_with_uuid("Kid", uuid(14), kid(&[]));
    });
    assert_eq!(errors(&answer), []);
    assert_eq!(rows(&database, "Kid"), [2, 3, 10, 11].map(uuid));
}

#[test]
fn a_reference_to_a_row_with_the_same_uuid_in_another_table_does_not_count() {
    let mut database = database();
    let answer = transact(&mut database, |transaction| {
        transaction.insert_with_uuid("Parent", uuid(5), Row::new().set("kids", refer(&[5])));
        transaction.insert_with_uuid("Kid", uuid(5), Row::new());
    });
    assert_eq!(errors(&answer), []);
    assert_eq!((rows(&database, "Parent"), rows(&database, "Kid")), (vec![uuid(5)], vec![]));
}

#[test]
fn the_last_weak_reference_of_a_required_column_cannot_be_removed() {
    let mut database = family();
    let club = Row::new().set("members", refer(&[2, 77]));
    let answer = transact(&mut database, |transaction| transaction.insert_with_uuid("Club", uuid(7), club));
    assert_eq!(errors(&answer), []);
    assert_eq!(database.row("Club", uuid(7)).unwrap()["members"], refer(&[2]));
    let empty = Row::new().set("kids", refer(&[3]));
    let answer = transact(&mut database, |transaction| transaction.update("Parent", vec![], empty));
    assert_eq!(errors(&answer), [(1, "constraint violation")]);
    // The default uuid belongs to no row.
    let answer = transact(&mut database, |transaction| transaction.insert("Club", Row::new()));
    assert_eq!(errors(&answer), [(1, "constraint violation")]);
}

#[test]
fn a_name_may_precede_its_insert_unless_the_insert_has_a_uuid() {
    let named = |explicit: Option<Uuid>| {
        let mut database = database();
        let kids = Row::new().set("kids", Atom::Named("kid".into()));
        let insert = |table: &str, row: Row, uuid, name: Option<&str>| Operation::Insert {
            table: table.into(),
            row: row.0,
            uuid,
            name: name.map(String::from),
        };
        let (parent, kid) = (insert("Parent", kids, None, None), insert("Kid", Row::new(), explicit, Some("kid")));
        let forward = database.clone().transact(&[parent.clone(), kid.clone()]);
        let backward = database.transact(&[kid.clone(), parent]);
        let twice = database.transact(&[kid.clone(), kid]);
        [forward, backward, twice].map(|answer| errors(&answer).first().map(|(_, error)| (*error).to_owned()))
    };
    assert_eq!(named(None), [None, None, Some("duplicate uuid-name".into())]);
    let unresolved = Some("referential integrity violation".to_owned());
    assert_eq!(named(Some(uuid(8))), [unresolved, None, Some("duplicate uuid".into())]);
}

#[test]
fn a_deleted_uuid_is_free_only_after_the_transaction() {
    let mut database = family();
    let again = |transaction: &mut Transaction| {
        transaction.delete("Parent", vec![Condition::uuid(uuid(1))]);
        transaction.insert_with_uuid("Parent", uuid(1), Row::new());
    };
    assert_eq!(errors(&transact(&mut database, again)), [(1, "duplicate uuid")]);
    let answer = transact(&mut database, |transaction| {
        transaction.insert_with_uuid("Parent", uuid(4), Row::new());
        transaction.delete("Parent", vec![Condition::uuid(uuid(4))]);
        transaction.insert_with_uuid("Parent", uuid(4), Row::new());
    });
    assert_eq!(errors(&answer), []);
}

#[test]
fn conditions_on_absent_optional_values() {
    let mut database = family();
    let mut count = |function, value: Datum| {
        let condition = vec![Condition::new("age", function, value)];
        transact(&mut database, |transaction| transaction.select("Parent", condition, &["name"]))[0].clone()
    };
    let seven = || Datum::One(Atom::Integer(7));
    let (some, none) = (json!({"rows": [{"name": "p"}]}), json!({"rows": []}));
    assert_eq!(count(Function::Equal, Datum::Empty), some);
    assert_eq!(count(Function::Includes, Datum::Empty), some);
    assert_eq!(count(Function::Excludes, seven()), some);
    assert_eq!(count(Function::NotEqual, seven()), some);
    assert_eq!(count(Function::Less, seven()), none);
    assert_eq!(count(Function::GreaterOrEqual, seven()), none);
    assert_eq!(count(Function::Less, Datum::Empty)["error"], "syntax error");
    assert_eq!(count(Function::Equal, Datum::One(Atom::Integer(500)))["error"], "constraint violation");
}

#[test]
fn mutations_compute_insert_and_delete() {
    let mut database = family();
    let mut mutate = |column: &str, mutator, value: Datum| {
        let mutations = vec![Mutation::new(column, mutator, value)];
        let answer = transact(&mut database, |transaction| {
            transaction.mutate("Parent", vec![], mutations);
            transaction.select("Parent", vec![], &[column]);
        });
        match answer[0]["error"].as_str() {
            Some(error) => json!(error),
            None => answer[1]["rows"][0][column].clone(),
        }
    };
    let text = |text: &str| Atom::String(text.into());
    let numbers = |numbers: &[i64]| Datum::set(numbers.iter().map(|number| Atom::Integer(*number)));
    assert_eq!(mutate("numbers", Mutator::Insert, numbers(&[1, 2, 4])), json!(["set", [1, 2, 4]]));
    assert_eq!(mutate("numbers", Mutator::Multiply, numbers(&[3])), json!(["set", [3, 6, 12]]));
    assert_eq!(mutate("numbers", Mutator::Divide, numbers(&[100])), "constraint violation");
    assert_eq!(mutate("numbers", Mutator::Modulo, numbers(&[0])), "domain error");
    assert_eq!(mutate("numbers", Mutator::Add, numbers(&[i64::MAX])), "range error");
    assert_eq!(mutate("numbers", Mutator::Delete, numbers(&[6, 99])), json!(["set", [3, 12]]));
    assert_eq!(mutate("age", Mutator::Insert, numbers(&[9])), 9);
    assert_eq!(mutate("age", Mutator::Insert, numbers(&[10])), "constraint violation");
    assert_eq!(mutate("age", Mutator::Add, Datum::One(Atom::Real(1.0))), 10);
    assert_eq!(mutate("age", Mutator::Add, numbers(&[200])), "constraint violation");
    assert_eq!(mutate("name", Mutator::Insert, text("x").into()), "syntax error");
    assert_eq!(mutate("born", Mutator::Insert, text("x").into()), "constraint violation");
    let two = Datum::map([(text("a"), text("1")), (text("b"), text("2"))]);
    assert_eq!(mutate("options", Mutator::Insert, two.clone()), json!(["map", [["a", "1"], ["b", "2"]]]));
    let other = Datum::map([(text("a"), text("9"))]);
    assert_eq!(mutate("options", Mutator::Insert, other.clone()), json!(["map", [["a", "1"], ["b", "2"]]]));
    assert_eq!(mutate("options", Mutator::Delete, other), json!(["map", [["a", "1"], ["b", "2"]]]));
    assert_eq!(mutate("options", Mutator::Delete, text("a").into()), json!(["map", [["b", "2"]]]));
}

#[test]
fn wait_compares_the_named_columns_or_all() {
    let mut database = family();
    let mut wait = |columns: Option<&[&str]>, equal, row: Row| {
        let columns = columns.map(|columns| columns.iter().map(ToString::to_string).collect());
        let (table, rows) = ("Parent".into(), vec![row.0]);
        let wait = Operation::Wait { table, conditions: vec![], columns, equal, rows, timeout: None };
        database.transact(&[wait]).remove(0)["error"].as_str().map(String::from)
    };
    let late = Some("timed out".to_owned());
    let named = || Row::new().text("name", "p");
    assert_eq!(wait(Some(&["name"]), true, named()), None);
    assert_eq!(wait(Some(&["name"]), false, named()), late);
    assert_eq!(wait(Some(&["name", "kids"]), true, named()), late);
    let whole = named().set("_uuid", refer(&[1])).set("kids", refer(&[2, 3])).set("favourite", refer(&[2]));
    assert_eq!(wait(Some(&["_uuid", "name", "kids", "favourite", "age"]), true, whole.clone()), None);
    // All columns include `_version`, which is unknown.
    assert_eq!(wait(None, true, whole), late);
}

#[test]
fn assert_checks_the_locks_of_the_caller() {
    let mut database = database();
    let mine = BTreeSet::from(["mine".to_owned()]);
    let assert = |lock: &str| [Operation::Assert { lock: lock.into() }];
    assert_eq!(database.transact_as(&mine, &assert("mine")), [json!({})]);
    assert_eq!(errors(&database.transact_as(&mine, &assert("theirs"))), [(0, "not owner")]);
    assert_eq!(errors(&database.transact(&assert("mine"))), [(0, "not owner")]);
    assert_eq!(errors(&database.transact(&[Operation::Abort])), [(0, "aborted")]);
}

#[test]
fn clones_are_independent_and_a_seed_determines_uuids() {
    let mut one = Database::with_seed(family().schema().clone(), 7);
    let insert = |database: &mut Database, name: &str| {
        let row = Row::new().text("name", name);
        transact(database, |transaction| transaction.insert("Parent", row))
    };
    let mut two = one.clone();
    assert_eq!(insert(&mut one, "a"), insert(&mut two, "a"));
    insert(&mut two, "b");
    assert_eq!((rows(&one, "Parent").len(), rows(&two, "Parent").len()), (1, 2));
    let mut other = Database::with_seed(one.schema().clone(), 8);
    assert_ne!(insert(&mut other, "a"), insert(&mut one, "a"));
}

#[test]
fn values_that_resolve_to_duplicates_are_rejected() {
    let mut database = database();
    let twice = Datum::set([Atom::Named("kid".into()), Atom::Uuid(uuid(2))]);
    let kid =
        Operation::Insert { table: "Kid".into(), row: Row::new().0, uuid: Some(uuid(2)), name: Some("kid".into()) };
    let mut parent = |column: &str, value: Datum| {
        let row = Row::new().set(column, value).0;
        let parent = Operation::Insert { table: "Parent".into(), row, uuid: None, name: None };
        database.transact(&[kid.clone(), parent, Operation::Abort])[1]["error"].as_str().map(String::from)
    };
    assert_eq!(parent("kids", twice), Some("ovsdb error".into()));
    assert_eq!(parent("numbers", Datum::set([Atom::Integer(3), Atom::Real(3.0)])), Some("ovsdb error".into()));
    assert_eq!(parent("numbers", Datum::set([Atom::Integer(3), Atom::Real(4.0)])), None);
    assert_eq!(parent("numbers", Datum::One(Atom::Real(3.5))), Some("syntax error".into()));
}
