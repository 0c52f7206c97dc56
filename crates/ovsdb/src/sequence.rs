//! The sequence cell, which makes commits exactly-once and fenced: each transaction requires the value that the last
//! one left, and replaces it by one that was never used before.

use crate::datum::{Atom, Datum};
use crate::operation::{Condition, Function, Mutation, Mutator};
use crate::replica::Snapshot;
use crate::transaction::Transaction;
use crate::uuid::Uuid;

/// Location of the sequence value: one key of a map of strings in one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceCell {
    /// Table of the row, such as `NB_Global`.
    pub table: String,
    /// The row; it must exist.
    pub uuid: Uuid,
    /// Name of the column, a map of strings to strings.
    pub column: String,
    /// Key whose value is the sequence value.
    pub key: String,
}

impl SequenceCell {
    /// The transaction with its guard and the new value, and the index of the guard: if the server rejects that
    /// operation, the cell had another value.
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
            guarded.without_owner().set_key(table, *uuid, column, key, next);
            return (guarded, guard);
        }
        // No value yet. An insert into a map does not change an existing key, so insert first and then require the new
        // value.
        guarded.append(transaction);
        let (condition, pair) = includes(next);
        let insert = vec![Mutation::new(column, Mutator::Insert, pair)];
        guarded.without_owner().mutate(table, vec![Condition::uuid(*uuid)], insert);
        let guard = guarded.require(table, *uuid, vec![condition]);
        (guarded, guard)
    }

    /// The value in a snapshot, which must have the table.
    pub fn value_in(&self, snapshot: &Snapshot) -> Option<String> {
        snapshot.table(&self.table)?.get(self.uuid)?.get(&self.column)?.get_str(&self.key)
    }
}
