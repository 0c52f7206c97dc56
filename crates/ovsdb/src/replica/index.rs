//! Indexes: rows by columns, or by the value of one key of a map.
//!
//! An index stores hashes instead of values, 24 bytes per entry; candidates are compared with the row.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use crate::datum::{Atom, Datum};
use crate::replica::row::Row;
use crate::schema::TableSchema;
use crate::uuid::Uuid;

const SHARDS: usize = 256;

/// By what an index finds rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IndexKey {
    /// Combination of columns, by their indexes in the table's schema.
    Columns(Vec<usize>),
    /// Value of one key of a map column.
    MapKey {
        /// Position in the schema's columns.
        column: usize,
        /// Key whose value is indexed.
        key: Atom,
    },
}

impl IndexKey {
    /// By column names; `None` if a column does not exist.
    pub fn columns(table: &TableSchema, names: &[&str]) -> Option<Self> {
        names.iter().map(|name| table.column_index(name)).collect::<Option<Vec<_>>>().map(Self::Columns)
    }

    /// By a string key of a map column; `None` if the column does not exist.
    pub fn map_key(table: &TableSchema, column: &str, key: &str) -> Option<Self> {
        Some(Self::MapKey { column: table.column_index(column)?, key: Atom::String(key.into()) })
    }

    /// Indexed values of a row; `None` if it is not indexed (a map without the key).
    fn values(&self, schema: &TableSchema, row: &Row) -> Option<Vec<Datum>> {
        let datum =
            |column: usize| row.get(column).cloned().unwrap_or_else(|| schema.columns[column].kind.default_datum());
        match self {
            Self::Columns(columns) => Some(columns.iter().map(|column| datum(*column)).collect()),
            Self::MapKey { column, key } => Some(vec![Datum::One(row.get(*column)?.get(key)?.clone())]),
        }
    }

    pub(crate) fn matches(&self, schema: &TableSchema, row: &Row, values: &[Datum]) -> bool {
        self.values(schema, row).is_some_and(|own| own == values)
    }
}

/// Maps values of some columns, or of a key, to rows.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    key: IndexKey,
    shards: Vec<Arc<Vec<(u64, Uuid)>>>,
}

impl Index {
    pub(crate) fn new(key: IndexKey) -> Self {
        // All shards share one empty list until they are written.
        let empty = Arc::new(Vec::new());
        Self { key, shards: vec![empty; SHARDS] }
    }

    pub(crate) fn key(&self) -> &IndexKey {
        &self.key
    }

    pub(crate) fn hash_of(values: &[Datum]) -> u64 {
        BuildHasherDefault::<DefaultHasher>::new().hash_one(values)
    }

    fn shard(hash: u64) -> usize {
        usize::try_from(hash >> 56).unwrap_or(0)
    }

    pub(crate) fn change(&mut self, schema: &TableSchema, uuid: Uuid, before: Option<&Row>, after: Option<&Row>) {
        let hash =
            |row: Option<&Row>| row.and_then(|row| self.key.values(schema, row)).map(|values| Self::hash_of(&values));
        let (old, new) = (hash(before), hash(after));
        if old == new {
            return;
        }
        if let Some(entry) = old.map(|hash| (hash, uuid)) {
            let shard = &mut self.shards[Self::shard(entry.0)];
            if let Ok(at) = shard.binary_search(&entry) {
                Arc::make_mut(shard).remove(at);
            }
        }
        if let Some(entry) = new.map(|hash| (hash, uuid)) {
            let shard = &mut self.shards[Self::shard(entry.0)];
            if let Err(at) = shard.binary_search(&entry) {
                Arc::make_mut(shard).insert(at, entry);
            }
        }
    }

    pub(crate) fn candidates(&self, hash: u64) -> impl Iterator<Item = Uuid> + '_ {
        let shard = &self.shards[Self::shard(hash)];
        let from = shard.partition_point(|entry| entry.0 < hash);
        shard[from..].iter().take_while(move |entry| entry.0 == hash).map(|entry| entry.1)
    }

    pub(crate) fn shrink(&mut self) {
        for shard in &mut self.shards {
            if let Some(shard) = Arc::get_mut(shard) {
                shard.shrink_to_fit();
            }
        }
    }
}
