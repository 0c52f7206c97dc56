//! Drift: rows of ours that another client changed or deleted, and that a transaction restores.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::datum::Atom;
use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;

use super::effect::{Effect, RestoredRow};
use super::follow_up::object_of;
use crate::contribution::Member;
use crate::identity::{ColumnRef, Owner, RowId};
use crate::ledger::{Ledger, Touched};
use crate::plan::{owner_of, row, rows_of};
use crate::store::Store;

/// Rows and owners whose ledger entries may differ from the database, because another client changed it.
#[derive(Debug, Clone, Default)]
pub(super) struct Drift {
    pub(super) owners: BTreeSet<Owner>,
    pub(super) rows: BTreeSet<RowId>,
    /// The rows that certainly another client changed: their repair is reported.
    pub(super) foreign: BTreeSet<RowId>,
}

impl Drift {
    pub(super) fn add(&mut self, more: Self) {
        self.owners.extend(more.owners);
        self.rows.extend(more.rows);
        self.foreign.extend(more.foreign);
    }

    /// Compares the wanted members with the database, not only the changed ones.
    pub(super) fn touch(&self, ledger: &Ledger, snapshot: &Snapshot, touched: &mut Touched) {
        let mut wanted: Vec<Member> = Vec::new();
        // Where the owner's rows are members: a deleted port was also removed from its switch.
        for entry in self.owners.iter().filter_map(|owner| ledger.entry(owner)) {
            wanted.extend(entry.members().iter().cloned());
        }
        // Other owners' members of the row. A member whose own row is gone comes back with its owner.
        for id in &self.rows {
            let Some(view) = crate::plan::row(snapshot, *id) else { continue };
            for (column, members) in ledger.sets_of(*id) {
                let kind = view.schema.column(column).map(|column| &column.kind.key.refers_to);
                let target = kind.and_then(Option::as_ref).and_then(|reference| snapshot.table(&reference.table));
                let there = |atom: &&Atom| match (atom, target) {
                    (Atom::Uuid(uuid), Some(target)) => target.get(*uuid).is_some(),
                    _ => true,
                };
                let column = ColumnRef { row: *id, column };
                wanted.extend(members.filter(there).map(|atom| Member { column, atom: atom.clone() }));
            }
        }
        for Member { column, atom } in wanted {
            let comes = || matches!(touched.rows.get(&column.row), Some(Some(_)));
            if crate::plan::row(snapshot, column.row).is_none() && !comes() {
                continue;
            }
            let change = touched.columns.entry(column).or_default();
            if !change.removed.contains(&atom) {
                change.added.insert(atom);
            }
        }
    }
}

/// Rows that a transaction restores, by owner.
pub(super) type Repairs = BTreeMap<Owner, Vec<RestoredRow>>;

/// The rows that another client changed and that a transaction writes. Rows that are as they should be are not among them.
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
