//! The differences between two moments of a database, row by row, each with the object that it was made for.

use std::borrow::Cow;

use ovsdb::datum::{Atom, Datum};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::schema::{ColumnSchema, ColumnType};
use ovsdb::uuid::Uuid;
use topology::identity::{OWNER_CONTROLLER, OWNER_NAME, OWNER_TYPE, Owner};
use topology::plan::owner_of;

use super::label;

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is new.
    Added,
    /// Some of its columns differ.
    Changed,
    /// It is gone.
    Removed,
}

/// A column that differs. References are by the names of the rows that they mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What its values may be; references count as strings.
    pub kind: ColumnType,
    /// What it was; of a row that is new, the default.
    pub old: Datum,
    /// What it is; of a row that is gone, the default.
    pub new: Datum,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The object that it was made for; none if it is not ours.
    pub owner: Option<Owner>,
    /// Its table.
    pub table: String,
    /// Its identity.
    pub uuid: Uuid,
    /// What people call it.
    pub label: String,
    /// What became of it.
    pub fate: Fate,
    /// The columns that differ, by name, without the marks of the owner.
    pub columns: Vec<Column>,
}

/// All differences, by owner, what became of them, table and name. What the controller keeps for itself in `NB_Global` is
/// no part of the network.
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
    all.retain(|difference| difference.fate != Fate::Changed || !difference.columns.is_empty());
    all.sort_by(|one, two| {
        let key = |row: &Difference| (row.owner.is_none(), row.owner.clone(), row.table.clone(), row.fate);
        key(one).cmp(&key(two)).then_with(|| (&one.label, one.uuid).cmp(&(&two.label, two.uuid)))
    });
    all
}

fn difference(old: Option<RowView<'_>>, new: Option<RowView<'_>>, before: &Snapshot, after: &Snapshot) -> Difference {
    // One of them is there.
    let shown = new.or(old);
    let (fate, schema) = match (old, new) {
        (None, _) => (Fate::Added, new.map(|row| row.schema)),
        (Some(_), Some(_)) => (Fate::Changed, new.map(|row| row.schema)),
        (Some(_), None) => (Fate::Removed, old.map(|row| row.schema)),
    };
    let owner = [new, old].into_iter().flatten().find_map(owner_of);
    let mut columns = Vec::new();
    for column in schema.into_iter().flat_map(|schema| &schema.columns) {
        let value = |row: Option<RowView<'_>>| {
            row.and_then(|row| row.get(&column.name)).map_or_else(|| column.kind.default_datum(), Cow::into_owned)
        };
        let (was, is) = (value(old), value(new));
        if was != is {
            let (was, is) = (spoken(&was, column, before), spoken(&is, column, after));
            // Of two rows of one name, one may have taken the other's place: nothing to be seen here.
            if was != is {
                columns.push(Column { name: column.name.clone(), kind: spoken_kind(column), old: was, new: is });
            }
        }
    }
    Difference {
        owner,
        table: schema.map(|schema| schema.name.clone()).unwrap_or_default(),
        uuid: shown.map_or(Uuid::ZERO, |row| row.uuid),
        label: shown.map(label).unwrap_or_default(),
        fate,
        columns,
    }
}

/// A value as people read it: references by name, without the marks.
fn spoken(datum: &Datum, column: &ColumnSchema, snapshot: &Snapshot) -> Datum {
    if let (Datum::Map(pairs), "external_ids") = (datum, column.name.as_str()) {
        let is_mark = |key: &Atom| {
            let key = key.to_string();
            [OWNER_CONTROLLER, OWNER_TYPE, OWNER_NAME].contains(&key.as_str())
        };
        return Datum::map(pairs.iter().filter(|(key, _)| !is_mark(key)).cloned());
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

fn spoken_kind(column: &ColumnSchema) -> ColumnType {
    let mut kind = column.kind.clone();
    if kind.key.refers_to.is_some() {
        kind.key = ovsdb::schema::BaseType::of(ovsdb::datum::AtomicType::String);
    }
    kind
}
