//! The ledger: which rows and members every owner has in what we want, and what sets are made of.
//!
//! It keeps identities, not contents: contents are computed when they are needed and compared with the database itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use ovsdb::datum::Atom;
use ovsdb::operation::RowValues;

use crate::contribution::{Contribution, Member};
use crate::identity::{ColumnRef, Name, Owner, RowId};

/// What one owner has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    rows: Box<[RowId]>,
    members: Box<[Member]>,
    names: Box<[Name]>,
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

    /// The words of the selectors that its rows name.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.members.is_empty() && self.names.is_empty()
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
    /// How many owners name a selector.
    named: BTreeMap<Name, u32>,
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

    /// Whether somebody's rows name a selector.
    pub fn is_named(&self, words: &str) -> bool {
        self.named.contains_key(words)
    }

    /// Gives an owner more members, beside what it has; returns what it had, if that was less.
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

    /// Takes an owner's members of some rows away; returns what it had, if it had any.
    pub fn remove_members_of(&mut self, owner: &Owner, rows: &[RowId], touched: &mut Touched) -> Option<Entry> {
        let entry = self.owners.get_mut(owner)?;
        let goes = |member: &Member| rows.contains(&member.column.row);
        if !entry.members.iter().any(goes) {
            return None;
        }
        let before = entry.clone();
        entry.members = before.members.iter().filter(|member| !goes(member)).cloned().collect();
        // Only these are touched: what else the owner has is none of this.
        for member in before.members.iter().filter(|member| goes(member)) {
            self.count_down(member, Some(touched));
        }
        Some(before)
    }

    /// Takes some of an owner's rows away, with their members and what they are members of; returns what it had.
    pub fn remove_rows(&mut self, owner: &Owner, gone: &BTreeSet<RowId>, touched: &mut Touched) -> Entry {
        let before = self.owners.get(owner).cloned().unwrap_or_default();
        let uuids: BTreeSet<Atom> = gone.iter().map(|id| Atom::Uuid(id.uuid)).collect();
        let goes = |member: &Member| gone.contains(&member.column.row) || uuids.contains(&member.atom);
        for member in before.members.iter().filter(|member| goes(member)) {
            self.count_down(member, Some(touched));
        }
        for id in before.rows.iter().filter(|id| gone.contains(id)) {
            // One that somebody else has from now on stays.
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

    fn count_down(&mut self, member: &Member, touched: Option<&mut Touched>) {
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

    /// Puts what an owner shall have, notes what that touches, and returns what it had.
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
            // One that somebody else has from now on stays.
            touched.rows.entry(*id).or_insert(None);
        }
        for row in rows {
            touched.rows.insert(row.id, Some((owner.clone(), row.values)));
        }
        before
    }

    /// Begins an entry with what the database holds of an owner.
    pub fn seed(&mut self, owner: &Owner, mut rows: Vec<RowId>, mut members: Vec<Member>, mut names: Vec<Name>) {
        names.sort_unstable();
        names.dedup();
        rows.sort_unstable();
        members.sort_unstable();
        members.dedup();
        self.replace(owner, Entry { rows: rows.into(), members: members.into(), names: names.into() }, None);
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
            self.count_down(member, touched.as_deref_mut());
        }
        before
    }
}
