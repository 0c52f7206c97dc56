//! Changes of rows, and their accumulation for slow readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::replica::Snapshot;
use crate::replica::row::Row;
use crate::schema::TableSchema;
use crate::uuid::Uuid;

/// Change of one row. Before and after always differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Index of the table among the monitored ones ([`Snapshot::table_at`]).
    pub table: usize,
    /// Identity of the row.
    pub uuid: Uuid,
    /// None if it was inserted.
    pub before: Option<Row>,
    /// None if it was deleted.
    pub after: Option<Row>,
}

/// Changes since the last batch, and the tables after them.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Sorted by table and uuid; at most one per row.
    pub changes: Vec<Change>,
    /// The tables after these changes.
    pub snapshot: Snapshot,
}

/// Changes that a reader has not taken yet: for each changed row, its state at the reader's last batch. At most one
/// entry per row, however many changes come.
#[derive(Debug, Default)]
pub struct Pending {
    before: BTreeMap<(usize, Uuid), Option<Row>>,
    /// Schemas of these rows, by table.
    schemas: Vec<Arc<TableSchema>>,
}

impl Pending {
    /// Adds applied changes.
    pub fn add(&mut self, changes: &[Change]) {
        for change in changes {
            self.before.entry((change.table, change.uuid)).or_insert_with(|| change.before.clone());
        }
    }

    /// Migrates the stored rows to other schemas, so that they can be compared with new rows.
    pub(crate) fn migrate(&mut self, schemas: &[Arc<TableSchema>]) {
        for ((table, _), before) in &mut self.before {
            if let (Some(row), Some(from), Some(to)) = (before.as_mut(), self.schemas.get(*table), schemas.get(*table))
            {
                *row = row.migrated(from, to);
            }
        }
        self.schemas = schemas.to_vec();
    }

    /// Whether no row changed.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// Number of changed rows, including those that changed back.
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// Takes all changes up to `snapshot`. A row that changed back is skipped.
    pub fn take(&mut self, snapshot: Snapshot) -> Changes {
        let mut changes = Vec::with_capacity(self.before.len());
        for ((table, uuid), before) in std::mem::take(&mut self.before) {
            let after = snapshot.table_at(table).and_then(|table| table.row(uuid)).cloned();
            if before != after {
                changes.push(Change { table, uuid, before, after });
            }
        }
        Changes { changes, snapshot }
    }
}
