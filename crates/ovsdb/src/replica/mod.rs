//! The monitored tables in memory.
//!
//! ```text
//!  updates ──apply──▶ Replica ──snapshot()──▶ Snapshot (immutable, shared)
//!                        └──▶ changes (before, after) ──▶ Subscription (merged for a slow reader)
//! ```

mod change;
mod index;
mod row;
mod table;

use std::collections::HashSet;
use std::sync::Arc;

pub use change::{Change, Changes, Pending};
pub use index::IndexKey;
pub use row::{MAX_COLUMNS, Row, RowView};
pub use table::Table;

use crate::datum::Datum;
use crate::memory::RowChange;
use crate::schema::{DatabaseSchema, TableSchema};
use crate::update::{RowUpdate, TableUpdate};
use crate::uuid::Uuid;

/// A row that the server says it changed and that we have never seen: the replica cannot be trusted any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server modified row {uuid} of {table}, which the replica does not have")]
pub struct OutOfStep {
    table: String,
    uuid: Uuid,
}

/// The live tables. Only the session that feeds them changes them.
#[derive(Debug, Clone, Default)]
pub struct Replica {
    tables: Vec<Arc<Table>>,
}

impl Replica {
    /// Empty tables of these schemas, with indexes beside those of the schema.
    pub(crate) fn new(schemas: &[Arc<TableSchema>], indexes: &[(usize, IndexKey)]) -> Self {
        let keys = |table: usize| -> Vec<IndexKey> {
            indexes.iter().filter(|(of, _)| *of == table).map(|(_, key)| key.clone()).collect()
        };
        let tables =
            schemas.iter().enumerate().map(|(place, schema)| Arc::new(Table::new(schema.clone(), &keys(place))));
        Self { tables: tables.collect() }
    }

    /// Empty tables of a database, those of these names: a replica that is fed by hand, in a simulation.
    pub fn of(schema: &DatabaseSchema, tables: &[&str]) -> Self {
        let schemas = tables.iter().filter_map(|name| schema.tables.get(*name)).cloned().map(Arc::new);
        Self::new(&schemas.collect::<Vec<_>>(), &[])
    }

    /// Applies what commits did in the in-memory database; tables that are not replicated are left out.
    pub fn feed(&mut self, changes: &[RowChange]) {
        for change in changes {
            let Some(table) = self.tables.iter_mut().find(|table| table.schema().name == change.table) else {
                continue;
            };
            let table = Arc::make_mut(table);
            let row = change.after.as_ref().map(|values| {
                let index =
                    |(column, datum): (&String, &Datum)| Some((table.schema().column_index(column)?, datum.clone()));
                Row::from_fields(&mut values.iter().filter_map(index).collect(), table.schema())
            });
            table.put(change.uuid, row.as_ref());
        }
    }

    /// The tables as they are now, for as long as somebody holds them.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { tables: self.tables.clone().into() }
    }

    /// The same rows under other schemas: columns go by name, and one whose type has changed starts anew.
    pub(crate) fn migrated(&self, schemas: &[Arc<TableSchema>], indexes: &[(usize, IndexKey)]) -> Self {
        let mut new = Self::new(schemas, indexes);
        for (old, new) in self.tables.iter().zip(&mut new.tables) {
            let table = Arc::make_mut(new);
            for view in old.iter() {
                let row = view.row.migrated(view.schema, table.schema());
                table.put(view.uuid, Some(&row));
            }
        }
        new
    }

    pub(crate) fn schemas(&self) -> Vec<Arc<TableSchema>> {
        self.tables.iter().map(|table| table.shared_schema()).collect()
    }

    /// All rows, as changes from nothing.
    pub(crate) fn as_changes(&self) -> Vec<Change> {
        let tables = self.tables.iter().enumerate();
        let rows = tables.flat_map(|(place, table)| table.iter().map(move |view| (place, view)));
        rows.map(|(table, view)| Change { table, uuid: view.uuid, before: None, after: Some(view.row.clone()) })
            .collect()
    }

    /// Applies updates and adds what truly changed to `changes`, also if it fails half-way.
    pub(crate) fn apply(&mut self, updates: Vec<TableUpdate>, changes: &mut Vec<Change>) -> Result<(), OutOfStep> {
        for TableUpdate { table: place, rows } in updates {
            let table = Arc::make_mut(&mut self.tables[place]);
            for (uuid, update) in rows {
                let after = match update {
                    RowUpdate::Whole(row) => Some(row),
                    RowUpdate::Deleted => None,
                    RowUpdate::Modified(differences) => {
                        let before =
                            table.row(uuid).ok_or_else(|| OutOfStep { table: table.schema().name.clone(), uuid })?;
                        Some(before.modified(differences, table.schema()))
                    }
                };
                if table.row(uuid) == after.as_ref() {
                    continue;
                }
                let before = table.put(uuid, after.as_ref());
                changes.push(Change { table: place, uuid, before, after });
            }
        }
        Ok(())
    }

    /// Makes the tables be what a whole new dump says, and adds what that changed: rows that are equal stay
    /// untouched, rows that the dump does not have are gone.
    pub(crate) fn replace(&mut self, dump: Vec<TableUpdate>, changes: &mut Vec<Change>) -> Result<(), OutOfStep> {
        let mut kept: Vec<HashSet<Uuid>> = vec![HashSet::new(); self.tables.len()];
        let was_empty: Vec<bool> = self.tables.iter().map(|table| table.is_empty()).collect();
        for update in &dump {
            if !was_empty[update.table] {
                kept[update.table].extend(update.rows.iter().map(|(uuid, _)| *uuid));
            }
        }
        let mut gone = Vec::new();
        for (place, table) in self.tables.iter().enumerate().filter(|(place, _)| !was_empty[*place]) {
            let rows = table.iter().map(|view| view.uuid).filter(|uuid| !kept[place].contains(uuid));
            gone.push(TableUpdate { table: place, rows: rows.map(|uuid| (uuid, RowUpdate::Deleted)).collect() });
        }
        self.apply(gone, changes)?;
        self.apply(dump, changes)?;
        for table in &mut self.tables {
            if let Some(table) = Arc::get_mut(table) {
                table.shrink();
            }
        }
        Ok(())
    }
}

/// All monitored tables at one moment. Cloning and keeping it is cheap: it shares its rows with the live tables.
#[derive(Debug, Clone)]
pub struct Snapshot {
    tables: Arc<[Arc<Table>]>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self { tables: Arc::new([]) }
    }
}

impl Snapshot {
    /// A table by name; `None` if it is not monitored.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.schema().name == name).map(|table| &**table)
    }

    /// A table by its place among the monitored ones, as changes name it.
    pub fn table_at(&self, place: usize) -> Option<&Table> {
        self.tables.get(place).map(|table| &**table)
    }

    /// All monitored tables.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().map(|table| &**table)
    }
}

#[cfg(test)]
mod tests;
