//! A sequence value in the database, by which commits happen once and only by the writer who is in charge: each
//! transaction requires the value that the last one left and replaces it by one that was never used before.

use crate::datum::{Atom, Datum};
use crate::operation::{Condition, Function, Mutation, Mutator};
use crate::replica::Snapshot;
use crate::transaction::Transaction;
use crate::uuid::Uuid;

/// Where the sequence value lives: one key of a map of strings in one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceCell {
    /// The table.
    pub table: String,
    /// The row.
    pub uuid: Uuid,
    /// The column, a map of strings to strings.
    pub column: String,
    /// The key.
    pub key: String,
}

impl SequenceCell {
    /// The transaction with its guard and the new value, and the guard's place: if the server refuses the operation
    /// there, another value stood in the cell.
    pub fn guarded(&self, transaction: &Transaction, last: Option<&str>, next: &str) -> (Transaction, usize) {
        let Self { table, uuid, column, key } = self;
        let mut guarded = Transaction::new();
        let includes = |value: &str| {
            let pair = Datum::map([(Atom::String(key.as_str().into()), Atom::String(value.into()))]);
            (Condition::new(column, Function::Includes, pair.clone()), pair)
        };
        if let Some(last) = last {
            let guard = guarded.require(table, *uuid, vec![includes(last).0]);
            guarded.append(transaction);
            guarded.owned_by_nobody().set_key(table, *uuid, column, key, next);
            return (guarded, guard);
        }
        // Nobody has written yet. An insert into a map leaves a key alone that is there: so it is tried, and whether
        // it took is required behind it.
        guarded.append(transaction);
        let (condition, pair) = includes(next);
        let insert = vec![Mutation::new(column, Mutator::Insert, pair)];
        guarded.owned_by_nobody().mutate(table, vec![Condition::uuid(*uuid)], insert);
        let guard = guarded.require(table, *uuid, vec![condition]);
        (guarded, guard)
    }

    /// What stands in the cell, in a snapshot that has its table.
    pub fn value_in(&self, snapshot: &Snapshot) -> Option<String> {
        snapshot.table(&self.table)?.get(self.uuid)?.get(&self.column)?.get_str(&self.key)
    }
}
