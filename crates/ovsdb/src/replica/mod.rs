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

/// The server modified a row that the replica does not have: the replica is wrong and must be replaced by a dump.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server modified row {uuid} of {table}, which the replica does not have")]
pub struct OutOfSync {
    table: String,
    uuid: Uuid,
}

/// The live tables, written by one session.
#[derive(Debug, Clone, Default)]
pub struct Replica {
    tables: Vec<Arc<Table>>,
}

impl Replica {
    /// Empty tables of these schemas, with additional indexes.
    pub(crate) fn new(schemas: &[Arc<TableSchema>], indexes: &[(usize, IndexKey)]) -> Self {
        let keys = |table: usize| -> Vec<IndexKey> {
            indexes.iter().filter(|(of, _)| *of == table).map(|(_, key)| key.clone()).collect()
        };
        let tables =
            schemas.iter().enumerate().map(|(position, schema)| Arc::new(Table::new(schema.clone(), &keys(position))));
        Self { tables: tables.collect() }
    }

    /// Empty tables with these names: a replica for simulations, filled by [`Replica::feed`].
    pub fn of(schema: &DatabaseSchema, tables: &[&str]) -> Self {
        let schemas = tables.iter().filter_map(|name| schema.tables.get(*name)).cloned().map(Arc::new);
        Self::new(&schemas.collect::<Vec<_>>(), &[])
    }

    /// Applies changes of the in-memory database; tables that are not replicated are skipped.
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

    /// The tables at this moment; not affected by later changes.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { tables: self.tables.clone().into() }
    }

    /// The same rows under other schemas, by column name; a column of another type gets its default.
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

    /// All rows, as insertions.
    pub(crate) fn as_changes(&self) -> Vec<Change> {
        let tables = self.tables.iter().enumerate();
        let rows = tables.flat_map(|(position, table)| table.iter().map(move |view| (position, view)));
        rows.map(|(table, view)| Change { table, uuid: view.uuid, before: None, after: Some(view.row.clone()) })
            .collect()
    }

    /// Applies updates and appends real changes to `changes`, also those before a failure.
    pub(crate) fn apply(&mut self, updates: Vec<TableUpdate>, changes: &mut Vec<Change>) -> Result<(), OutOfSync> {
        for TableUpdate { table: position, rows } in updates {
            let table = Arc::make_mut(&mut self.tables[position]);
            for (uuid, update) in rows {
                let after = match update {
                    RowUpdate::Whole(row) => Some(row),
                    RowUpdate::Deleted => None,
                    RowUpdate::Modified(differences) => {
                        let before =
                            table.row(uuid).ok_or_else(|| OutOfSync { table: table.schema().name.clone(), uuid })?;
                        Some(before.modified(differences, table.schema()))
                    }
                };
                if table.row(uuid) == after.as_ref() {
                    continue;
                }
                let before = table.put(uuid, after.as_ref());
                changes.push(Change { table: position, uuid, before, after });
            }
        }
        Ok(())
    }

    /// Replaces the contents by a full dump and appends the differences to `changes`; equal rows are not touched.
    pub(crate) fn replace(&mut self, dump: Vec<TableUpdate>, changes: &mut Vec<Change>) -> Result<(), OutOfSync> {
        let mut kept: Vec<HashSet<Uuid>> = vec![HashSet::new(); self.tables.len()];
        let was_empty: Vec<bool> = self.tables.iter().map(|table| table.is_empty()).collect();
        for update in &dump {
            if !was_empty[update.table] {
                kept[update.table].extend(update.rows.iter().map(|(uuid, _)| *uuid));
            }
        }
        let mut gone = Vec::new();
        for (position, table) in self.tables.iter().enumerate().filter(|(position, _)| !was_empty[*position]) {
            let rows = table.iter().map(|view| view.uuid).filter(|uuid| !kept[position].contains(uuid));
            gone.push(TableUpdate { table: position, rows: rows.map(|uuid| (uuid, RowUpdate::Deleted)).collect() });
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

/// All monitored tables at one moment. Cheap to clone and keep: it shares its rows with the live tables.
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

    /// A table by its position, as in [`Change::table`].
    pub fn table_at(&self, position: usize) -> Option<&Table> {
        self.tables.get(position).map(|table| &**table)
    }

    /// All monitored tables, in the order of the configuration.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().map(|table| &**table)
    }
}

#[cfg(test)]
mod tests;
