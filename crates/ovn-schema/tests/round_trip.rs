//! Every table: values become a row and the same values again.

use ovn_schema::northbound::{LogicalSwitchPort, Meter, Qos};
use ovn_schema::{DATABASES, Database, Holds, Shape, TableDeclaration, TableRow};
use ovsdb::datum::{Atom, AtomicType, Datum};
use ovsdb::operation::RowValues;
use ovsdb::transaction::Row;
use ovsdb::uuid::Uuid;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn atoms(kind: AtomicType) -> BoxedStrategy<Atom> {
    match kind {
        AtomicType::Integer => prop_oneof![Just(0), any::<i64>()].prop_map(Atom::Integer).boxed(),
        AtomicType::Boolean => any::<bool>().prop_map(Atom::Boolean).boxed(),
        AtomicType::String => "\\PC{0,40}".prop_map(|text| Atom::String(text.as_str().into())).boxed(),
        AtomicType::Uuid => any::<[u8; 16]>().prop_map(|bytes| Atom::Uuid(Uuid::from_bytes(bytes))).boxed(),
        AtomicType::Real => unreachable!("no column is real"),
    }
}

fn data(shape: Shape) -> BoxedStrategy<Datum> {
    let keys = atoms(shape.key);
    match (shape.value, shape.holds) {
        (Some(value), _) => prop::collection::vec((keys, atoms(value)), 0..4).prop_map(Datum::map).boxed(),
        (None, Holds::One) => keys.prop_map(Datum::One).boxed(),
        (None, Holds::AtMostOne) => prop::option::of(keys).prop_map(Datum::set).boxed(),
        (None, Holds::Many) => prop::collection::vec(keys, 0..4).prop_map(Datum::set).boxed(),
    }
}

fn rows(table: &TableDeclaration) -> BoxedStrategy<RowValues> {
    let columns: Vec<_> = table
        .columns
        .iter()
        .map(|column| data(column.shape).prop_map(|datum| (column.name.to_owned(), datum)))
        .collect();
    columns.prop_map(|columns| columns.into_iter().collect()).boxed()
}

/// The default value of a column of this shape.
fn default(shape: Shape) -> Datum {
    match (shape.value, shape.holds) {
        (Some(_), _) => Datum::map([]),
        (None, Holds::One) => Datum::One(shape.key.default_atom()),
        (None, _) => Datum::Empty,
    }
}

#[test]
fn every_table_round_trips() {
    for table in DATABASES.iter().flat_map(Database::tables) {
        let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&rows(table), |values| {
            let written = (table.rewrite)(Uuid::ZERO, &values).expect("values of the declared shapes");
            prop_assert_eq!(&written.full.0, &values);
            for column in table.columns {
                let is_default = values[column.name] == default(column.shape);
                prop_assert_eq!(written.sparse.0.contains_key(column.name), !is_default, "{}", column.name);
            }
            let again = (table.rewrite)(Uuid::ZERO, &written.sparse.0).expect("fewer of the same values");
            prop_assert_eq!(again, written);
            Ok(())
        });
        outcome.map_err(|error| format!("{}: {error}", table.name)).expect("a round trip");
    }
}

#[test]
fn every_table_rejects_values_of_another_shape() {
    for table in DATABASES.iter().flat_map(Database::tables) {
        for column in table.columns {
            // No column is a map of booleans.
            let odd = Datum::map([(Atom::Boolean(true), Atom::Boolean(true))]);
            let error = (table.rewrite)(Uuid::ZERO, &Row::new().set(column.name, odd).0).unwrap_err();
            assert_eq!((error.table, error.column, error.expected), (table.name, column.name, column.shape));
        }
    }
}

#[test]
fn fields_map_to_their_columns() {
    let port = LogicalSwitchPort {
        name: "default_web".into(),
        kind: "router".into(),
        addresses: ["b".into(), "a".into()].into(),
        tag: Some(7),
        up: Some(true),
        external_ids: [("pod".into(), "true".into())].into(),
        ..LogicalSwitchPort::default()
    };
    let expected = Row::new()
        .text("name", "default_web")
        .text("type", "router")
        .set("addresses", Datum::set(["a", "b"].map(|text| Atom::String(text.into()))))
        .set("tag", Atom::Integer(7))
        .set("up", Atom::Boolean(true))
        .map("external_ids", [("pod", "true")]);
    assert_eq!(port.to_sparse_row(), expected);
    assert_eq!(port.to_row().0.len(), LogicalSwitchPort::COLUMNS.len());
    assert_eq!(LogicalSwitchPort::from_values(Uuid::ZERO, &expected.0), Ok(port));

    let bands = [Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16])];
    let meter = Meter { bands: bands.into(), fair: Some(false), ..Meter::default() };
    assert_eq!(Meter::from_values(Uuid::ZERO, &meter.to_sparse_row().0), Ok(meter));
    let qos = Qos { action: [("dscp".into(), 42)].into(), matching: "ip4".into(), ..Qos::default() };
    assert_eq!(Qos::from_values(Uuid::ZERO, &qos.to_row().0), Ok(qos));
}
