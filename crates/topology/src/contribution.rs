//! What one owner adds to the network: rows that are its own, and members of sets that it shares with others.

use std::collections::{BTreeMap, BTreeSet};

use ovn_schema::{AtomValue, StringMap};
use ovn_schema::{Column, TableRow};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::RowValues;
use ovsdb::uuid::Uuid;

use crate::identity::{ColumnRef, Name, Owner, RowId, row_uuid};
use crate::maps;
use crate::refusal::Refusal;

/// A row as it shall be, without the sets that others add to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredRow {
    /// Which row.
    pub id: RowId,
    /// Its columns that are not the default.
    pub values: RowValues,
}

/// One member of one set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The set.
    pub column: ColumnRef,
    /// The member.
    pub atom: Atom,
}

/// What one owner adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contribution {
    /// Its own rows.
    pub rows: Vec<DesiredRow>,
    /// Its members of sets, of its own rows and of others'.
    pub members: Vec<Member>,
    /// The words of selectors that its rows name: they must be there before it and stay until it is gone.
    pub names: Vec<Name>,
    /// What of its wishes is left out, and why.
    pub refusal: Option<Refusal>,
}

/// Rows that were taken over from another controller: the identity that we compute, and the one that the row has.
/// Empty in all but migrated databases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aliases(BTreeMap<Uuid, Uuid>);

impl Aliases {
    /// The identity that the row has.
    pub fn resolve(&self, computed: Uuid) -> Uuid {
        if self.0.is_empty() {
            return computed;
        }
        self.0.get(&computed).copied().unwrap_or(computed)
    }

    /// Remembers a row that stands for a computed one.
    pub fn insert(&mut self, computed: Uuid, actual: Uuid) {
        self.0.insert(computed, actual);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Collects what an owner adds.
#[derive(Debug)]
pub struct Draft<'a> {
    owner: &'a Owner,
    /// The owner's UID, or its name where identity goes by name.
    identity: &'a str,
    aliases: &'a Aliases,
    contribution: Contribution,
}

impl<'a> Draft<'a> {
    /// Nothing yet, for this owner.
    pub fn new(owner: &'a Owner, identity: &'a str, aliases: &'a Aliases) -> Self {
        Self { owner, identity, aliases, contribution: Contribution::default() }
    }

    /// The identity of one of the owner's rows.
    pub fn uuid<R: TableRow>(&self, key: &str) -> Uuid {
        self.aliases.resolve(row_uuid(R::TABLE, self.owner.kind(), self.identity, key))
    }

    /// The identity of somebody else's row.
    pub fn foreign<R: TableRow>(&self, kind: &str, identity: &str, key: &str) -> Uuid {
        self.aliases.resolve(row_uuid(R::TABLE, kind, identity, key))
    }

    /// The identity of one of the cluster's own rows.
    pub fn of_cluster<R: TableRow>(&self, key: &str) -> Uuid {
        self.foreign::<R>("Cluster", "cluster", key)
    }

    /// Marks for a row of the owner's.
    pub fn mark(&self, more: &[(&str, &str)]) -> StringMap {
        self.owner.mark(more)
    }

    /// Adds a row; its sets of references stay empty here and are filled by [`Draft::member`].
    pub fn row<R: TableRow>(&mut self, key: &str, row: &R) -> Uuid {
        self.row_as(self.identity, key, row)
    }

    /// Adds a row that goes by another identity than the owner's: one that outlives the object.
    pub fn row_as<R: TableRow>(&mut self, identity: &str, key: &str, row: &R) -> Uuid {
        let computed = row_uuid(R::TABLE, self.owner.kind(), identity, key);
        let uuid = self.aliases.resolve(computed);
        let mut values = row.to_sparse_row().0;
        if uuid != computed
            && let Some(marks) = values.get_mut("external_ids")
        {
            let pairs = marks.pairs().iter().cloned();
            let stands_for = (crate::identity::STANDS_FOR.to_owned().to_atom(), computed.to_string().to_atom());
            *marks = Datum::map(pairs.chain([stands_for]));
        }
        self.contribution.rows.push(DesiredRow { id: RowId { table: R::TABLE, uuid }, values });
        uuid
    }

    /// Adds a member to a set of any row.
    pub fn member<R: TableRow, T: AtomValue>(&mut self, column: Column<R, BTreeSet<T>>, of: Uuid, member: &T) {
        let column = ColumnRef { row: RowId { table: R::TABLE, uuid: of }, column: column.name() };
        self.contribution.members.push(Member { column, atom: member.to_atom() });
    }

    /// Adds a pair to a map of any row.
    pub fn pair<R: TableRow>(&mut self, column: Column<R, StringMap>, of: Uuid, key: &str, value: &str) {
        let column = ColumnRef { row: RowId { table: R::TABLE, uuid: of }, column: column.name() };
        self.contribution.members.push(Member { column, atom: maps::member(key, value) });
    }

    /// Leaves something out; of several reasons the first is told.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.contribution.refusal.get_or_insert(refusal);
    }

    /// A row that is a member of a set of another: a port of a switch, a route of a router.
    pub fn child<P: TableRow, R: TableRow>(
        &mut self,
        column: Column<P, BTreeSet<Uuid>>,
        parent: Uuid,
        key: &str,
        row: &R,
    ) -> Uuid {
        let uuid = self.row(key, row);
        self.member(column, parent, &uuid);
        uuid
    }

    /// Says that a row names a selector.
    pub fn name(&mut self, words: Name) {
        self.contribution.names.push(words);
    }

    /// What was collected.
    pub fn finish(self) -> Contribution {
        self.contribution
    }
}
