//! A table of the replica: rows in 256 shards by the first byte of their uuid.
//!
//! A snapshot shares everything with the live table. A change copies the list of shards and the touched shard if a
//! snapshot still uses them.

use std::sync::Arc;

use crate::datum::Datum;
use crate::replica::index::{Index, IndexKey};
use crate::replica::row::{Row, RowView};
use crate::schema::TableSchema;
use crate::uuid::Uuid;

const SHARDS: usize = 256;

/// Rows of one shard, sorted by uuid.
type Shard = Vec<(Uuid, Row)>;

/// The replica of one monitored table. Clones share its rows until one of them changes.
#[derive(Debug, Clone)]
pub struct Table {
    schema: Arc<TableSchema>,
    shards: Vec<Arc<Shard>>,
    length: usize,
    indexes: Vec<Index>,
}

impl Table {
    pub(crate) fn new(schema: Arc<TableSchema>, keys: &[IndexKey]) -> Self {
        let mut keys: Vec<IndexKey> = keys.to_vec();
        keys.extend(schema.indexes.iter().map(|columns| IndexKey::Columns(columns.clone())));
        let empty = Arc::new(Shard::new());
        Self { schema, shards: vec![empty; SHARDS], length: 0, indexes: keys.into_iter().map(Index::new).collect() }
    }

    /// The monitored columns.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    pub(crate) fn shared_schema(&self) -> Arc<TableSchema> {
        self.schema.clone()
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn shard(uuid: Uuid) -> usize {
        usize::from(uuid.as_bytes()[0])
    }

    /// Stored values, without defaults. `None` if there is no such row.
    pub fn row(&self, uuid: Uuid) -> Option<&Row> {
        let shard = &self.shards[Self::shard(uuid)];
        shard.binary_search_by_key(&uuid, |(other, _)| *other).ok().map(|at| &shard[at].1)
    }

    /// A row, for access by column name.
    pub fn get(&self, uuid: Uuid) -> Option<RowView<'_>> {
        self.row(uuid).map(|row| RowView { uuid, row, schema: &self.schema })
    }

    /// All rows, sorted by uuid.
    pub fn iter(&self) -> impl Iterator<Item = RowView<'_>> {
        let rows = self.shards.iter().flat_map(|shard| shard.iter());
        rows.map(|(uuid, row)| RowView { uuid: *uuid, row, schema: &self.schema })
    }

    /// Sets or removes a row and returns its old values.
    pub(crate) fn put(&mut self, uuid: Uuid, row: Option<&Row>) -> Option<Row> {
        let shard = &mut self.shards[Self::shard(uuid)];
        let position = shard.binary_search_by_key(&uuid, |(other, _)| *other);
        let before = match (position, row.cloned()) {
            (Ok(at), Some(row)) => Some(std::mem::replace(&mut Arc::make_mut(shard)[at].1, row)),
            (Ok(at), None) => {
                self.length -= 1;
                Some(Arc::make_mut(shard).remove(at).1)
            }
            (Err(at), Some(row)) => {
                self.length += 1;
                Arc::make_mut(shard).insert(at, (uuid, row));
                None
            }
            (Err(_), None) => None,
        };
        for index in &mut self.indexes {
            index.change(&self.schema, uuid, before.as_ref(), row);
        }
        before
    }

    /// Rows whose indexed columns have these values; empty if there is no such index.
    ///
    /// For an index on a key of a map, pass the one value.
    pub fn find<'a>(&'a self, key: &'a IndexKey, values: &'a [Datum]) -> impl Iterator<Item = RowView<'a>> + 'a {
        let index = self.indexes.iter().find(|index| index.key() == key);
        let hash = Index::hash_of(values);
        index
            .into_iter()
            .flat_map(move |index| index.candidates(hash))
            .filter_map(|uuid| self.get(uuid))
            .filter(move |view| key.matches(&self.schema, view.row, values))
    }

    /// Frees excess capacity.
    pub(crate) fn shrink(&mut self) {
        for shard in &mut self.shards {
            if let Some(shard) = Arc::get_mut(shard) {
                shard.shrink_to_fit();
            }
        }
        for index in &mut self.indexes {
            index.shrink();
        }
    }
}
