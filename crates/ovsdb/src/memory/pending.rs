//! The database as a transaction sees it: committed rows, overlaid with its own changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::condition::Clause;
use super::store::{Replaced, Row, RowId, Store};
use crate::datum::Datum;
use crate::uuid::Uuid;

/// Uncommitted changes. Dropping them is the rollback.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    store: &'a Store,
    /// New state of every touched row; `None` for a committed row that is deleted.
    touched: BTreeMap<RowId, Option<Arc<Row>>>,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        Self { store, touched: BTreeMap::new() }
    }

    pub(crate) fn store(&self) -> &'a Store {
        self.store
    }

    pub(crate) fn row(&self, id: RowId) -> Option<&Arc<Row>> {
        match self.touched.get(&id) {
            Some(touched) => touched.as_ref(),
            None => self.store.row(id),
        }
    }

    /// Whether an insert may use this uuid. That of a row that the same transaction deleted is not free, unless the
    /// transaction had inserted it itself.
    pub(crate) fn may_insert(&self, id: RowId) -> bool {
        !self.touched.contains_key(&id) && self.store.row(id).is_none()
    }

    pub(crate) fn put(&mut self, id: RowId, row: Row) {
        self.touched.insert(id, Some(Arc::new(row)));
    }

    pub(crate) fn delete(&mut self, id: RowId) {
        if self.store.row(id).is_some() {
            self.touched.insert(id, None);
        } else {
            self.touched.remove(&id);
        }
    }

    /// The rows of a table that match all conditions, sorted by uuid.
    pub(crate) fn matching(&self, table: usize, clauses: &[Clause]) -> Vec<(Uuid, Arc<Row>)> {
        let holds = |uuid: Uuid, row: &Row| clauses.iter().all(|clause| clause.holds(uuid, row));
        if let Some(uuid) = clauses.iter().find_map(Clause::only_row) {
            let row = self.row((table, uuid)).filter(|row| holds(uuid, row));
            return row.map(|row| (uuid, row.clone())).into_iter().collect();
        }
        let committed = self
            .store
            .table(table)
            .rows
            .iter()
            .filter_map(|(uuid, row)| (!self.touched.contains_key(&(table, *uuid))).then_some((*uuid, row)));
        let everything = (table, Uuid::ZERO)..=(table, Uuid::from_bytes([0xff; 16]));
        let touched = self.touched.range(everything).filter_map(|(id, row)| Some((id.1, row.as_ref()?)));
        let found = committed.chain(touched).filter(|(uuid, row)| holds(*uuid, row));
        let mut found: Vec<(Uuid, Arc<Row>)> = found.map(|(uuid, row)| (uuid, row.clone())).collect();
        found.sort_unstable_by_key(|(uuid, _)| *uuid);
        found
    }

    /// All touched rows that differ from the committed state.
    pub(crate) fn replaced(&self) -> Vec<Replaced> {
        self.touched
            .iter()
            .map(|(id, after)| Replaced { id: *id, before: self.store.row(*id).cloned(), after: after.clone() })
            .filter(|change| {
                change.before.as_ref().map(|row| &row.values) != change.after.as_ref().map(|row| &row.values)
            })
            .collect()
    }

    /// Sets the values of an existing row.
    pub(crate) fn set_values(&mut self, id: RowId, values: Vec<Datum>) {
        if let Some(row) = self.row(id) {
            let version = row.version;
            self.put(id, Row { version, values });
        }
    }
}
