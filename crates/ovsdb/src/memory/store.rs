//! Committed rows, with indexes and reference counts that make commits cheap to check.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::layout::Layout;
use crate::datum::Datum;
use crate::uuid::Uuid;

/// Index of the table, and uuid of the row.
pub(crate) type RowId = (usize, Uuid);

/// Values of a row, by column index.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) version: Uuid,
    pub(crate) values: Vec<Datum>,
}

/// A row that a commit inserts, changes or deletes.
#[derive(Debug)]
pub(crate) struct Replaced {
    pub(crate) id: RowId,
    pub(crate) before: Option<Arc<Row>>,
    pub(crate) after: Option<Arc<Row>>,
}

/// Rows of one table, with indexes and references.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) rows: BTreeMap<Uuid, Arc<Row>>,
    /// For each index of the schema, the row with each value.
    indexes: Vec<BTreeMap<Vec<Datum>, Uuid>>,
    /// Number of strong references to a row.
    strong: BTreeMap<Uuid, i64>,
    /// Rows with weak references to a row.
    weak: BTreeMap<Uuid, BTreeSet<RowId>>,
}

impl Table {
    pub(crate) fn strong_references(&self, uuid: Uuid) -> i64 {
        self.strong.get(&uuid).copied().unwrap_or(0)
    }

    pub(crate) fn weak_referrers(&self, uuid: Uuid) -> impl Iterator<Item = RowId> + '_ {
        self.weak.get(&uuid).into_iter().flatten().copied()
    }

    /// The row with these values in an index.
    pub(crate) fn holder(&self, index: usize, key: &[Datum]) -> Option<Uuid> {
        self.indexes.get(index)?.get(key).copied()
    }
}

/// Values of a row in the columns of an index.
pub(crate) fn index_key(columns: &[usize], row: &Row) -> Vec<Datum> {
    columns.iter().map(|column| row.values[*column].clone()).collect()
}

/// All tables. A clone shares them until either is written to.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    tables: Vec<Arc<Table>>,
}

impl Store {
    pub(crate) fn new(layout: &Layout) -> Self {
        let empty = |indexes: usize| Table { indexes: vec![BTreeMap::new(); indexes], ..Table::default() };
        Self { tables: layout.tables.iter().map(|table| Arc::new(empty(table.schema.indexes.len()))).collect() }
    }

    pub(crate) fn table(&self, position: usize) -> &Table {
        &self.tables[position]
    }

    pub(crate) fn row(&self, id: RowId) -> Option<&Arc<Row>> {
        self.tables[id.0].rows.get(&id.1)
    }

    /// Applies a checked commit.
    pub(crate) fn apply(&mut self, layout: &Layout, replaced: &[Replaced], strong: &BTreeMap<RowId, i64>) {
        // Remove all old keys before adding new ones: rows may have swapped theirs.
        for change in replaced {
            if let Some(before) = &change.before {
                self.forget(layout, change.id, before);
            }
        }
        for change in replaced {
            if let Some(after) = &change.after {
                self.remember(layout, change.id, after);
            }
        }
        for ((position, uuid), change) in strong {
            let counts = &mut Arc::make_mut(&mut self.tables[*position]).strong;
            let count = counts.entry(*uuid).or_insert(0);
            *count += change;
            if *count == 0 {
                counts.remove(uuid);
            }
        }
    }

    fn forget(&mut self, layout: &Layout, id: RowId, row: &Row) {
        let described = &layout.tables[id.0];
        let table = Arc::make_mut(&mut self.tables[id.0]);
        table.rows.remove(&id.1);
        for (index, columns) in described.schema.indexes.iter().enumerate() {
            table.indexes[index].remove(&index_key(columns, row));
        }
        for reference in described.references.iter().filter(|reference| !reference.strong) {
            let referrers = &mut Arc::make_mut(&mut self.tables[reference.target]).weak;
            for target in reference.targets(&row.values) {
                if let Some(rows) = referrers.get_mut(&target) {
                    rows.remove(&id);
                    if rows.is_empty() {
                        referrers.remove(&target);
                    }
                }
            }
        }
    }

    fn remember(&mut self, layout: &Layout, id: RowId, row: &Arc<Row>) {
        let described = &layout.tables[id.0];
        let table = Arc::make_mut(&mut self.tables[id.0]);
        table.rows.insert(id.1, row.clone());
        for (index, columns) in described.schema.indexes.iter().enumerate() {
            table.indexes[index].insert(index_key(columns, row), id.1);
        }
        for reference in described.references.iter().filter(|reference| !reference.strong) {
            let referrers = &mut Arc::make_mut(&mut self.tables[reference.target]).weak;
            for target in reference.targets(&row.values) {
                referrers.entry(target).or_default().insert(id);
            }
        }
    }
}
