//! The ledger: the desired rows and members of every owner, and how many owners want each member.
//!
//! It keeps identities, not contents: contents are computed when needed and compared with the database.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use objects::Name;
use ovsdb::datum::Atom;
use ovsdb::operation::RowValues;

use crate::contribution::{Contribution, Member};
use crate::identity::{ColumnRef, Owner, RowId};

/// The rows and members of one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    rows: Box<[RowId]>,
    members: Box<[Member]>,
    names: Box<[Name]>,
}

impl Entry {
    /// The owner's own rows.
    pub fn rows(&self) -> &[RowId] {
        &self.rows
    }

    /// Its members of sets, in its own rows and in others'; sorted.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The words of the selectors that its rows name.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.members.is_empty() && self.names.is_empty()
    }
}

/// The rows and members that a batch changes, to be compared with the database.
#[derive(Debug, Clone, Default)]
pub struct Touched {
    /// Desired rows with their owner; none for rows to be removed.
    pub rows: BTreeMap<RowId, Option<(Owner, RowValues)>>,
    /// Members to add to and to remove from sets.
    pub columns: BTreeMap<ColumnRef, ColumnChange>,
}

/// Members of one set that are wanted, or no longer wanted.
#[derive(Debug, Clone, Default)]
pub struct ColumnChange {
    /// Members that must be in the set.
    pub added: BTreeSet<Atom>,
    /// Members that must not be in the set.
    pub removed: BTreeSet<Atom>,
}

impl Touched {
    /// Whether nothing is touched.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.columns.is_empty()
    }
}

/// The entries of all owners, and reference counts of members and selector names.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    owners: BTreeMap<Owner, Entry>,
    /// Number of owners that want each member.
    sets: BTreeMap<ColumnRef, BTreeMap<Atom, u32>>,
    /// Number of owners that name each selector.
    named: BTreeMap<Name, u32>,
}

impl Ledger {
    /// An owner's entry; none if it has nothing.
    pub fn entry(&self, owner: &Owner) -> Option<&Entry> {
        self.owners.get(owner)
    }

    /// All owners with an entry, in dependency order.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.keys()
    }

    /// The wanted members of a row, by column.
    pub fn sets_of(&self, row: RowId) -> impl Iterator<Item = (&'static str, impl Iterator<Item = &Atom>)> {
        let first = ColumnRef { row, column: "" };
        let range = self.sets.range((Bound::Included(first), Bound::Unbounded));
        range.take_while(move |(column, _)| column.row == row).map(|(column, members)| (column.column, members.keys()))
    }

    /// Whether rows of any owner name a selector.
    pub fn is_named(&self, words: &str) -> bool {
        self.named.contains_key(words)
    }

    /// Adds members to an owner's entry; returns the former entry if it changed.
    pub fn add_members(&mut self, owner: &Owner, members: Vec<Member>, touched: &mut Touched) -> Option<Entry> {
        let entry = self.owners.get(owner)?;
        let more: Vec<Member> =
            members.into_iter().filter(|member| entry.members.binary_search(member).is_err()).collect();
        if more.is_empty() {
            return None;
        }
        let mut members: Vec<Member> = entry.members.iter().cloned().chain(more.iter().cloned()).collect();
        members.sort_unstable();
        members.dedup();
        for member in more {
            *self.sets.entry(member.column).or_default().entry(member.atom.clone()).or_default() += 1;
            let change = touched.columns.entry(member.column).or_default();
            change.removed.remove(&member.atom);
            change.added.insert(member.atom);
        }
        let entry = self.owners.get_mut(owner)?;
        let before = entry.clone();
        entry.members = members.into();
        Some(before)
    }

    /// Removes an owner's members of these rows; returns the former entry if it changed.
    pub fn remove_members_of(&mut self, owner: &Owner, rows: &[RowId], touched: &mut Touched) -> Option<Entry> {
        let entry = self.owners.get_mut(owner)?;
        let goes = |member: &Member| rows.contains(&member.column.row);
        if !entry.members.iter().any(goes) {
            return None;
        }
        let before = entry.clone();
        entry.members = before.members.iter().filter(|member| !goes(member)).cloned().collect();
        // Only these are touched, not the owner's other members.
        for member in before.members.iter().filter(|member| goes(member)) {
            self.decrement(member, Some(touched));
        }
        Some(before)
    }

    /// Removes some of an owner's rows, with their members and memberships; returns the former entry.
    pub fn remove_rows(&mut self, owner: &Owner, gone: &BTreeSet<RowId>, touched: &mut Touched) -> Entry {
        let before = self.owners.get(owner).cloned().unwrap_or_default();
        let uuids: BTreeSet<Atom> = gone.iter().map(|id| Atom::Uuid(id.uuid)).collect();
        let goes = |member: &Member| gone.contains(&member.column.row) || uuids.contains(&member.atom);
        for member in before.members.iter().filter(|member| goes(member)) {
            self.decrement(member, Some(touched));
        }
        for id in before.rows.iter().filter(|id| gone.contains(id)) {
            // Not if another owner has taken the row over.
            touched.rows.entry(*id).or_insert(None);
        }
        let entry = Entry {
            rows: before.rows.iter().filter(|id| !gone.contains(id)).copied().collect(),
            members: before.members.iter().filter(|member| !goes(member)).cloned().collect(),
            names: before.names.clone(),
        };
        match entry.is_empty() {
            true => drop(self.owners.remove(owner)),
            false => drop(self.owners.insert(owner.clone(), entry)),
        }
        before
    }

    fn decrement(&mut self, member: &Member, touched: Option<&mut Touched>) {
        let Some(members) = self.sets.get_mut(&member.column) else { return };
        let Some(count) = members.get_mut(&member.atom) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        members.remove(&member.atom);
        if members.is_empty() {
            self.sets.remove(&member.column);
        }
        if let Some(touched) = touched {
            let change = touched.columns.entry(member.column).or_default();
            change.added.remove(&member.atom);
            change.removed.insert(member.atom.clone());
        }
    }

    /// Replaces an owner's entry, records what that touches, and returns the former entry.
    pub fn put(&mut self, owner: &Owner, contribution: Contribution, touched: &mut Touched) -> Entry {
        let Contribution { rows, mut members, mut names, refusal: _ } = contribution;
        members.sort_unstable();
        members.dedup();
        names.sort_unstable();
        names.dedup();
        let rows_of_it = rows.iter().map(|row| row.id).collect();
        let entry = Entry { rows: rows_of_it, members: members.into(), names: names.into() };
        let before = self.replace(owner, entry, Some(touched));
        let now: BTreeSet<RowId> = rows.iter().map(|row| row.id).collect();
        for id in before.rows.iter().filter(|id| !now.contains(id)) {
            // Not if another owner has taken the row over.
            touched.rows.entry(*id).or_insert(None);
        }
        for row in rows {
            touched.rows.insert(row.id, Some((owner.clone(), row.values)));
        }
        before
    }

    /// Creates an owner's entry from the database.
    pub fn seed(&mut self, owner: &Owner, mut rows: Vec<RowId>, mut members: Vec<Member>, mut names: Vec<Name>) {
        names.sort_unstable();
        names.dedup();
        rows.sort_unstable();
        members.sort_unstable();
        members.dedup();
        self.replace(owner, Entry { rows: rows.into(), members: members.into(), names: names.into() }, None);
    }

    /// Restores a former entry: the batch was not committed.
    pub fn restore(&mut self, owner: &Owner, entry: Entry) {
        self.replace(owner, entry, None);
    }

    fn replace(&mut self, owner: &Owner, entry: Entry, mut touched: Option<&mut Touched>) -> Entry {
        // New members first, so that the count of one that stays never reaches zero.
        for member in &entry.members {
            let count = self.sets.entry(member.column).or_default().entry(member.atom.clone()).or_default();
            *count += 1;
            // Also if it was wanted before: another client may have removed it.
            if let Some(touched) = touched.as_deref_mut() {
                let change = touched.columns.entry(member.column).or_default();
                change.removed.remove(&member.atom);
                change.added.insert(member.atom.clone());
            }
        }
        for words in &entry.names {
            *self.named.entry(words.clone()).or_default() += 1;
        }
        let before =
            if entry.is_empty() { self.owners.remove(owner) } else { self.owners.insert(owner.clone(), entry) };
        let before = before.unwrap_or_default();
        for words in &before.names {
            if let Some(count) = self.named.get_mut(words) {
                *count -= 1;
                if *count == 0 {
                    self.named.remove(words);
                }
            }
        }
        for member in &before.members {
            self.decrement(member, touched.as_deref_mut());
        }
        before
    }
}
