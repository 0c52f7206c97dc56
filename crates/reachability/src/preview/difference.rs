//! Differences between two snapshots of a database, row by row, with their owners.

use std::borrow::Cow;

use ovsdb::datum::{Atom, Datum};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::schema::{ColumnSchema, ColumnType};
use ovsdb::uuid::Uuid;
use topology::identity::{OWNER_CONTROLLER, OWNER_NAME, OWNER_TYPE, Owner};
use topology::plan::owner_of;

use super::label;

/// How a row differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowChange {
    /// Only in the later snapshot.
    Added,
    /// Some of its columns differ.
    Changed,
    /// Only in the earlier snapshot.
    Removed,
}

/// A column that differs. References are labels of the rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// As in the schema, such as `external_ids`.
    pub name: String,
    /// References are of type string.
    pub kind: ColumnType,
    /// The default, for an added row.
    pub old: Datum,
    /// The default, for a removed row.
    pub new: Datum,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// None if another client owns it.
    pub owner: Option<Owner>,
    /// As in the schema, such as `ACL`.
    pub table: String,
    /// The same in both snapshots.
    pub uuid: Uuid,
    /// See [`label`](super::label()).
    pub label: String,
    /// Added, changed or removed.
    pub change: RowChange,
    /// Without the owner's keys in `external_ids`.
    pub columns: Vec<Column>,
}

/// All differences, sorted by owner, table, change and label. `NB_Global`, the controller's own state, is left out.
pub fn differences(before: &Snapshot, after: &Snapshot) -> Vec<Difference> {
    let mut all = Vec::new();
    for table in after.tables().filter(|table| table.schema().name != "NB_Global") {
        let former = before.table(&table.schema().name);
        for row in table.iter() {
            match former.and_then(|former| former.get(row.uuid)) {
                None => all.push(difference(None, Some(row), before, after)),
                Some(old) if old.row != row.row => all.push(difference(Some(old), Some(row), before, after)),
                Some(_) => {}
            }
        }
        for old in former.into_iter().flat_map(ovsdb::replica::Table::iter) {
            if table.get(old.uuid).is_none() {
                all.push(difference(Some(old), None, before, after));
            }
        }
    }
    all.retain(|difference| difference.change != RowChange::Changed || !difference.columns.is_empty());
    all.sort_by(|one, two| {
        let key = |row: &Difference| (row.owner.is_none(), row.owner.clone(), row.table.clone(), row.change);
        key(one).cmp(&key(two)).then_with(|| (&one.label, one.uuid).cmp(&(&two.label, two.uuid)))
    });
    all
}

fn difference(old: Option<RowView<'_>>, new: Option<RowView<'_>>, before: &Snapshot, after: &Snapshot) -> Difference {
    // At least one is set.
    let shown = new.or(old);
    let (change, schema) = match (old, new) {
        (None, _) => (RowChange::Added, new.map(|row| row.schema)),
        (Some(_), Some(_)) => (RowChange::Changed, new.map(|row| row.schema)),
        (Some(_), None) => (RowChange::Removed, old.map(|row| row.schema)),
    };
    let owner = [new, old].into_iter().flatten().find_map(owner_of);
    let mut columns = Vec::new();
    for column in schema.into_iter().flat_map(|schema| &schema.columns) {
        let value = |row: Option<RowView<'_>>| {
            row.and_then(|row| row.get(&column.name)).map_or_else(|| column.kind.default_datum(), Cow::into_owned)
        };
        let (was, is) = (value(old), value(new));
        if was != is {
            let (was, is) = (readable(&was, column, before), readable(&is, column, after));
            // A reference to another row of the same name looks the same.
            if was != is {
                columns.push(Column { name: column.name.clone(), kind: readable_kind(column), old: was, new: is });
            }
        }
    }
    Difference {
        owner,
        table: schema.map(|schema| schema.name.clone()).unwrap_or_default(),
        uuid: shown.map_or(Uuid::ZERO, |row| row.uuid),
        label: shown.map(label).unwrap_or_default(),
        change,
        columns,
    }
}

/// A value for people: references as labels, without the owner's keys.
fn readable(datum: &Datum, column: &ColumnSchema, snapshot: &Snapshot) -> Datum {
    if let (Datum::Map(pairs), "external_ids") = (datum, column.name.as_str()) {
        let is_owner_key = |key: &Atom| {
            let key = key.to_string();
            [OWNER_CONTROLLER, OWNER_TYPE, OWNER_NAME].contains(&key.as_str())
        };
        return Datum::map(pairs.iter().filter(|(key, _)| !is_owner_key(key)).cloned());
    }
    let Some(target) = &column.kind.key.refers_to else { return datum.clone() };
    let table = snapshot.table(&target.table);
    let name = |atom: Atom| match (&atom, table) {
        (Atom::Uuid(uuid), Some(table)) => {
            let name = table.get(*uuid).map_or_else(|| atom.to_string(), label);
            Atom::String(name.as_str().into())
        }
        _ => Atom::String(atom.to_string().as_str().into()),
    };
    match datum {
        Datum::Map(_) => datum.clone(),
        _ => Datum::set(datum.atoms().map(name)),
    }
}

fn readable_kind(column: &ColumnSchema) -> ColumnType {
    let mut kind = column.kind.clone();
    if kind.key.refers_to.is_some() {
        kind.key = ovsdb::schema::BaseType::of(ovsdb::datum::AtomicType::String);
    }
    kind
}
