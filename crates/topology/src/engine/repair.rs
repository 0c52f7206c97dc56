//! Drift: rows of ours that another client changed or deleted, and that a transaction restores.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;

use super::effect::{Effect, RestoredRow};
use super::follow_up::object_of;
use crate::identity::{Owner, RowId};
use crate::ledger::Touched;
use crate::plan::{owner_of, row, rows_of};
use crate::store::Store;

/// Rows that a transaction restores, by owner.
pub(super) type Repairs = BTreeMap<Owner, Vec<RestoredRow>>;

/// What a transaction writes of the rows that another client has changed. Rows that turned out to be as they should be
/// are not among them.
pub(super) fn repairs(
    changed: &BTreeSet<RowId>,
    touched: &Touched,
    transaction: &Transaction,
    snapshot: &Snapshot,
) -> Repairs {
    let mut repairs = Repairs::new();
    if changed.is_empty() {
        return repairs;
    }
    for id in rows_of(transaction).intersection(changed) {
        let view = row(snapshot, *id);
        let wanted = touched.rows.get(id).and_then(Option::as_ref);
        let owner = wanted.map(|(owner, _)| owner.clone()).or_else(|| view.and_then(owner_of));
        let wanted_name = wanted.and_then(|(_, values)| values.get("name")).map(ToString::to_string);
        let name = wanted_name.or_else(|| view.and_then(|view| view.text("name")));
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| id.uuid.to_string());
        if let Some(owner) = owner {
            repairs.entry(owner).or_default().push(RestoredRow { table: id.table, name });
        }
    }
    repairs
}

/// The effects of repairs that were committed.
pub(super) fn effects(repairs: Repairs, store: &Store) -> impl Iterator<Item = Effect> + '_ {
    repairs.into_iter().map(|(owner, rows)| Effect::Restored { object: object_of(&owner, store), owner, rows })
}
