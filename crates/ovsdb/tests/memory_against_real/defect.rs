//! Defects of the real server that transactions must avoid.
//!
//! Open vSwitch 3.5 (not 3.1) checks each row of a transaction once for weak references to deleted rows, in the
//! order of a hash table. A row that is checked before the deleted row keeps its dangling
//! reference. So if a transaction touches a row and deletes a row that it refers to weakly, or deletes two rows
//! that it refers to, the result is undefined. The in-memory database removes the reference,
//! as RFC 7047 requires.
//!
//! It computes numbers too small for its own JSON parser: a client that sends one back loses the connection.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::datum::{Atom, Datum};
use ovsdb::memory::RowChange;
use ovsdb::operation::{Operation, RowValues};
use ovsdb::schema::DatabaseSchema;
use ovsdb::uuid::Uuid;
use serde_json::json;

type RowId = (String, Uuid);

/// What a transaction does to weak references.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WeakReferences {
    /// No referenced row is deleted.
    Untouched,
    /// Referenced rows are deleted, and all servers remove the references.
    Removed,
    /// Referenced rows are deleted, and the server's result is undefined.
    LeftToChance,
}

pub(crate) fn assess(
    schema: &DatabaseSchema,
    before: &BTreeMap<RowId, RowValues>,
    changes: &[RowChange],
    operations: &[Operation],
) -> WeakReferences {
    let deleted: BTreeSet<RowId> = changes
        .iter()
        .filter(|change| change.after.is_none())
        .map(|change| (change.table.clone(), change.uuid))
        .collect();
    let mut outcome = WeakReferences::Untouched;
    for (id, row) in before.iter().filter(|(id, _)| !deleted.contains(id)) {
        let lost: BTreeSet<RowId> =
            references(schema, &id.0, row, false).into_iter().filter(|target| deleted.contains(target)).collect();
        if lost.is_empty() {
            continue;
        }
        outcome = WeakReferences::Removed;
        let changed = changes.iter().find(|change| (&change.table, change.uuid) == (&id.0, id.1));
        // Touched itself, by an added or removed reference, or by a row inserted and deleted meanwhile.
        let by_itself = changed.and_then(|change| change.after.as_ref()).is_some_and(|after| {
            let weak = |column: &String| is_weak(schema, &id.0, column);
            row.iter()
                .zip(after)
                .any(|(old, new)| old != new && (!weak(old.0) || !only_lost(schema, &id.0, old, new.1, &deleted)))
        });
        let held = |row: &Option<RowValues>, table: &str| {
            let held = row.as_ref().map(|row| references(schema, table, row, true)).unwrap_or_default();
            held.iter().filter(|target| *target == id).count()
        };
        let by_reference =
            changes.iter().any(|change| held(&change.before, &change.table) != held(&change.after, &change.table));
        // A matched row may be unchanged at the end: a new dangling reference is removed again.
        let by_condition = operations.iter().any(|operation| match operation {
            Operation::Update { table, .. } | Operation::Mutate { table, .. } => *table == id.0,
            _ => false,
        });
        let mentioned = || json!(operations).to_string().contains(&id.1.to_string());
        if lost.len() > 1 || by_itself || by_reference || by_condition || mentioned() {
            return WeakReferences::LeftToChance;
        }
    }
    outcome
}

/// Whether a result contains a number that the server cannot parse.
pub(crate) fn has_unparsable_number(changes: &[RowChange]) -> bool {
    let rows = changes.iter().filter_map(|change| change.after.as_ref());
    let mut atoms = rows.flat_map(|row| row.values()).flat_map(Datum::atoms);
    atoms.any(|atom| matches!(atom, Atom::Real(real) if real.is_subnormal()))
}

fn is_weak(schema: &DatabaseSchema, table: &str, column: &str) -> bool {
    let kind = &schema.tables[table].column(column).unwrap().kind;
    let bases = [Some(&kind.key), kind.value.as_ref()];
    bases.into_iter().flatten().any(|base| base.refers_to.as_ref().is_some_and(|reference| !reference.strong))
}

/// Whether a column lost references to deleted rows and nothing else.
fn only_lost(
    schema: &DatabaseSchema,
    table: &str,
    old: (&String, &Datum),
    new: &Datum,
    deleted: &BTreeSet<RowId>,
) -> bool {
    let targets = |datum: &Datum| references(schema, table, &RowValues::from([(old.0.clone(), datum.clone())]), false);
    let left: Vec<RowId> = targets(old.1).into_iter().filter(|target| !deleted.contains(target)).collect();
    left == targets(new)
}

/// The rows that a row refers to.
fn references(schema: &DatabaseSchema, table: &str, row: &RowValues, strong: bool) -> Vec<RowId> {
    let mut found = Vec::new();
    for (column, datum) in row {
        let kind = &schema.tables[table].column(column).unwrap().kind;
        let values: Vec<Atom> = datum.pairs().iter().map(|pair| pair.1.clone()).collect();
        for (base, atoms) in [(Some(&kind.key), datum.atoms().collect()), (kind.value.as_ref(), values)] {
            let Some(reference) = base.and_then(|base| base.refers_to.as_ref()) else { continue };
            if reference.strong == strong {
                let uuids =
                    atoms.iter().filter_map(|atom| if let Atom::Uuid(uuid) = atom { Some(*uuid) } else { None });
                found.extend(uuids.map(|uuid| (reference.table.clone(), uuid)));
            }
        }
    }
    found
}
