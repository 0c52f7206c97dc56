//! An in-memory database with the semantics of ovsdb-server.
//!
//! ```text
//!  operations ──▶ execution ──▶ pending ──▶ commit ──▶ store
//!                 values        rows as     references, garbage,
//!                 conditions    they would  number of rows,
//!                 mutations     be          indexes
//!                     └─────────── answer ─────┘
//! ```
//!
//! Pure: no socket, no clock, uuids from a seed. Property tests and simulations of a controller run against it; a
//! differential test compares it with the real server. Known bugs of the server are not reproduced: see the removal of
//! weak references in `commit` and the product in `mutation`.

mod commit;
mod condition;
mod execution;
mod fault;
mod layout;
mod mutation;
mod names;
mod pending;
mod store;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use self::commit::Commit;
use self::execution::Execution;
use self::layout::Layout;
use self::names::{Generator, Names};
use self::pending::Pending;
use self::store::{Row, Store};
use crate::operation::{Operation, RowValues};
use crate::schema::DatabaseSchema;
use crate::uuid::Uuid;

/// The database. A clone shares all rows with the original until either is written to.
#[derive(Debug, Clone)]
pub struct Database {
    layout: Arc<Layout>,
    store: Store,
    generator: Generator,
    commits: u64,
}

/// Change of one row by a commit, as a monitor of all columns reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// Table of the row.
    pub table: String,
    /// Row that changed.
    pub uuid: Uuid,
    /// Old values; none if it was inserted.
    pub before: Option<RowValues>,
    /// New values; none if it was deleted.
    pub after: Option<RowValues>,
}

impl Database {
    /// An empty database, with a fixed seed.
    pub fn new(schema: DatabaseSchema) -> Self {
        Self::with_seed(schema, 0)
    }

    /// An empty database; the seed determines the uuids of inserted rows.
    pub fn with_seed(schema: DatabaseSchema, seed: u64) -> Self {
        let layout = Layout::new(schema);
        Self { store: Store::new(&layout), layout: Arc::new(layout), generator: Generator::new(seed), commits: 0 }
    }

    /// As given to [`Database::new`].
    pub fn schema(&self) -> &DatabaseSchema {
        &self.layout.schema
    }

    /// Executes the operations, all or none, and replies as the server does: one result per operation; an error for the
    /// first that fails, then nulls; an error of the commit as an additional element. The client holds no locks.
    pub fn transact(&mut self, operations: &[Operation]) -> Vec<Value> {
        self.transact_as(&BTreeSet::new(), operations)
    }

    /// As [`Database::transact`], for a client that holds locks.
    pub fn transact_as(&mut self, locks: &BTreeSet<String>, operations: &[Operation]) -> Vec<Value> {
        self.execute(locks, operations).0
    }

    /// As [`Database::transact`], and the changed rows, sorted by table and uuid; none if the transaction failed.
    pub fn transact_with_changes(
        &mut self,
        locks: &BTreeSet<String>,
        operations: &[Operation],
    ) -> (Vec<Value>, Vec<RowChange>) {
        let (answer, commit) = self.execute(locks, operations);
        let changes = commit.map_or_else(Vec::new, |commit| {
            commit
                .replaced
                .iter()
                .map(|change| {
                    let (table, uuid) = change.id;
                    let values = |row: &Option<Arc<Row>>| row.as_ref().map(|row| self.layout.named_values(table, row));
                    let (before, after) = (values(&change.before), values(&change.after));
                    RowChange { table: self.layout.tables[table].schema.name.clone(), uuid, before, after }
                })
                .collect()
        });
        (answer, changes)
    }

    fn execute(&mut self, locks: &BTreeSet<String>, operations: &[Operation]) -> (Vec<Value>, Option<Commit>) {
        let mut answer = Vec::with_capacity(operations.len() + 1);
        let pending = Pending::new(&self.store);
        let names = Names::new(&mut self.generator);
        let mut execution = Execution { layout: &self.layout, pending, names, locks };
        for operation in operations {
            match execution.run(operation) {
                Ok(result) => answer.push(result),
                Err(fault) => {
                    answer.push(fault.to_json());
                    answer.resize(operations.len(), Value::Null);
                    return (answer, None);
                }
            }
        }
        let Execution { mut pending, mut names, .. } = execution;
        match commit::prepare(&self.layout, &mut pending, &mut names) {
            Ok(commit) => {
                if !commit.replaced.is_empty() {
                    self.store.apply(&self.layout, &commit.replaced, &commit.strong);
                    self.commits += 1;
                }
                (answer, Some(commit))
            }
            Err(fault) => {
                answer.push(fault.to_json());
                (answer, None)
            }
        }
    }

    /// Number of transactions that changed a row.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// All rows with their values, sorted by table and uuid.
    pub fn tables(&self) -> impl Iterator<Item = (&str, Uuid, RowValues)> {
        self.layout.tables.iter().enumerate().flat_map(move |(position, table)| {
            let rows = self.store.table(position).rows.iter();
            rows.map(move |(uuid, row)| (table.schema.name.as_str(), *uuid, self.layout.named_values(position, row)))
        })
    }

    /// All values of a row, also defaults; `None` if it does not exist.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<RowValues> {
        let position = self.layout.position(table).ok()?;
        self.store.row((position, uuid)).map(|row| self.layout.named_values(position, row))
    }
}
