//! The ledger: which rows and members every owner has in what we want, and what sets are made of.
//!
//! It keeps identities, not contents: contents are computed when they are needed and compared with the database itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use ovsdb::datum::Atom;
use ovsdb::operation::RowValues;

use crate::contribution::{Contribution, Member};
use crate::identity::{ColumnRef, Owner, RowId};

/// What one owner has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    rows: Box<[RowId]>,
    members: Box<[Member]>,
}

impl Entry {
    /// Its rows.
    pub fn rows(&self) -> &[RowId] {
        &self.rows
    }

    /// The members that it has of others' sets and its own.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.members.is_empty()
    }
}

/// What a batch of changes touches, to be compared with the database.
#[derive(Debug, Clone, Default)]
pub struct Touched {
    /// Rows as they shall be, with their owner; none if they shall not be.
    pub rows: BTreeMap<RowId, Option<(Owner, RowValues)>>,
    /// Members that shall be there, and those that went.
    pub columns: BTreeMap<ColumnRef, ColumnChange>,
}

/// Members of one set that shall be there, and those that went.
#[derive(Debug, Clone, Default)]
pub struct ColumnChange {
    /// They shall be in it.
    pub added: BTreeSet<Atom>,
    /// They shall not.
    pub removed: BTreeSet<Atom>,
}

impl Touched {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.columns.is_empty()
    }
}

/// All owners' entries, and the sets that they make together.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    owners: BTreeMap<Owner, Entry>,
    /// How many owners want a member in a set.
    sets: BTreeMap<ColumnRef, BTreeMap<Atom, u32>>,
}

impl Ledger {
    /// What an owner has.
    pub fn entry(&self, owner: &Owner) -> Option<&Entry> {
        self.owners.get(owner)
    }

    /// All owners.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.keys()
    }

    /// The sets of a row.
    pub fn sets_of(&self, row: RowId) -> impl Iterator<Item = (&'static str, impl Iterator<Item = &Atom>)> {
        let first = ColumnRef { row, column: "" };
        let range = self.sets.range((Bound::Included(first), Bound::Unbounded));
        range.take_while(move |(column, _)| column.row == row).map(|(column, members)| (column.column, members.keys()))
    }

    /// Puts what an owner shall have, notes what that touches, and returns what it had.
    pub fn put(&mut self, owner: &Owner, contribution: Contribution, touched: &mut Touched) -> Entry {
        let Contribution { rows, mut members, refusal: _ } = contribution;
        members.sort_unstable();
        members.dedup();
        let entry = Entry { rows: rows.iter().map(|row| row.id).collect(), members: members.into() };
        let before = self.replace(owner, entry, Some(touched));
        let now: BTreeSet<RowId> = rows.iter().map(|row| row.id).collect();
        for id in before.rows.iter().filter(|id| !now.contains(id)) {
            // One that somebody else has from now on stays.
            touched.rows.entry(*id).or_insert(None);
        }
        for row in rows {
            touched.rows.insert(row.id, Some((owner.clone(), row.values)));
        }
        before
    }

    /// Begins an entry with what the database holds of an owner.
    pub fn seed(&mut self, owner: &Owner, mut rows: Vec<RowId>, mut members: Vec<Member>) {
        rows.sort_unstable();
        members.sort_unstable();
        members.dedup();
        self.replace(owner, Entry { rows: rows.into(), members: members.into() }, None);
    }

    /// Puts an entry back as it was: what was touched did not happen.
    pub fn restore(&mut self, owner: &Owner, entry: Entry) {
        self.replace(owner, entry, None);
    }

    fn replace(&mut self, owner: &Owner, entry: Entry, mut touched: Option<&mut Touched>) -> Entry {
        // The new ones first, so that a member that stays is never counted down to nothing.
        for member in &entry.members {
            let count = self.sets.entry(member.column).or_default().entry(member.atom.clone()).or_default();
            *count += 1;
            // Also if it is wanted already: somebody may have taken it out by hand.
            if let Some(touched) = touched.as_deref_mut() {
                let change = touched.columns.entry(member.column).or_default();
                change.removed.remove(&member.atom);
                change.added.insert(member.atom.clone());
            }
        }
        let before =
            if entry.is_empty() { self.owners.remove(owner) } else { self.owners.insert(owner.clone(), entry) };
        let before = before.unwrap_or_default();
        for member in &before.members {
            let Some(members) = self.sets.get_mut(&member.column) else { continue };
            let Some(count) = members.get_mut(&member.atom) else { continue };
            *count -= 1;
            if *count == 0 {
                members.remove(&member.atom);
                if members.is_empty() {
                    self.sets.remove(&member.column);
                }
                if let Some(touched) = touched.as_deref_mut() {
                    let change = touched.columns.entry(member.column).or_default();
                    change.added.remove(&member.atom);
                    change.removed.insert(member.atom.clone());
                }
            }
        }
        before
    }
}
