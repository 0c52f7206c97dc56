//! Changes, and what is kept of them for a reader who is slow.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::replica::Snapshot;
use crate::replica::row::Row;
use crate::schema::TableSchema;
use crate::uuid::Uuid;

/// What happened to one row. Before and after always differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The table's place among the monitored ones ([`Snapshot::table_at`]).
    pub table: usize,
    /// The row.
    pub uuid: Uuid,
    /// What it was; none if it is new.
    pub before: Option<Row>,
    /// What it is; none if it is gone.
    pub after: Option<Row>,
}

/// Changes since the last look, and the tables as they are after them.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// By table and row; at most one for each row.
    pub changes: Vec<Change>,
    /// The tables after these changes.
    pub snapshot: Snapshot,
}

/// What a reader has not seen yet: for each row that changed, what it was when the reader last looked. However many
/// changes come, it holds at most one entry for each row.
#[derive(Debug, Default)]
pub struct Pending {
    before: BTreeMap<(usize, Uuid), Option<Row>>,
    /// The schemas that the rows above are of, by table.
    schemas: Vec<Arc<TableSchema>>,
}

impl Pending {
    /// Adds changes that were made.
    pub fn add(&mut self, changes: &[Change]) {
        for change in changes {
            self.before.entry((change.table, change.uuid)).or_insert_with(|| change.before.clone());
        }
    }

    /// Brings what is kept under other schemas, so that it can be compared with rows of those.
    pub(crate) fn migrate(&mut self, schemas: &[Arc<TableSchema>]) {
        for ((table, _), before) in &mut self.before {
            if let (Some(row), Some(from), Some(to)) = (before.as_mut(), self.schemas.get(*table), schemas.get(*table))
            {
                *row = row.migrated(from, to);
            }
        }
        self.schemas = schemas.to_vec();
    }

    /// Whether there is nothing to see.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// How many rows changed, some of them maybe there and back.
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// Takes all, against the tables as they are now. A row that changed there and back is left out.
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
