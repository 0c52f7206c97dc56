//! Contributions: the rows that an owner has alone, and its members of shared sets.

use std::collections::{BTreeMap, BTreeSet};

use objects::Name;
use ovn_schema::{AtomValue, StringMap};
use ovn_schema::{Column, TableRow};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::RowValues;
use ovsdb::uuid::Uuid;

use crate::identity::{ColumnRef, Owner, RowId, row_uuid};
use crate::maps;
use crate::refusal::Refusal;

/// A desired row, without the sets that several owners contribute to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredRow {
    /// The row's table and UUID.
    pub id: RowId,
    /// Columns with non-default values.
    pub values: RowValues,
}

/// One value in a set column of a row that several owners may contribute to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Row and column of the set; the row may belong to another owner.
    pub column: ColumnRef,
    /// A UUID, an address, or a pair of a map as `key=value`.
    pub atom: Atom,
}

/// The desired state of one owner: the diff with the ledger makes the transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contribution {
    /// Rows that are deleted with this owner.
    pub rows: Vec<DesiredRow>,
    /// Its members of sets, of its own rows and of others'.
    pub members: Vec<Member>,
    /// The selectors that its rows name: they must exist before these rows, and until these are removed.
    pub names: Vec<Name>,
    /// Why a part of the object is left out.
    pub refusal: Option<Refusal>,
}

/// Rows with another UUID than the computed one: adopted rows, and rows of an earlier version. Empty in all but migrated
/// databases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aliases {
    /// From the identity of an adopted row to its UUID.
    adopted: BTreeMap<Uuid, Uuid>,
    /// From the computed identity to the one that an earlier version computed.
    former: BTreeMap<Uuid, Uuid>,
}

impl Aliases {
    /// The UUID of the row in the database, for a computed one.
    pub fn resolve(&self, computed: Uuid) -> Uuid {
        let identity = self.identity(computed);
        self.adopted.get(&identity).copied().unwrap_or(identity)
    }

    /// The identity of a row: the computed one, or the former one if the database has the row under it.
    pub fn identity(&self, computed: Uuid) -> Uuid {
        self.former.get(&computed).copied().unwrap_or(computed)
    }

    /// Adds an adopted row: `identity` is what its owner computes, `actual` its UUID in the database.
    pub fn insert(&mut self, identity: Uuid, actual: Uuid) {
        self.adopted.insert(identity, actual);
    }

    /// Adds a row that keeps the identity of an earlier version.
    pub fn insert_former(&mut self, computed: Uuid, former: Uuid) {
        self.former.insert(computed, former);
    }
}

/// Builds the contribution of an owner; UUIDs are computed, so nothing is read.
#[derive(Debug)]
pub struct Draft<'a> {
    owner: &'a Owner,
    /// The owner's UID, or its name if its rows are identified by name.
    identity: &'a str,
    aliases: &'a Aliases,
    contribution: Contribution,
}

impl<'a> Draft<'a> {
    /// An empty contribution of this owner; `identity` is its UID or name.
    pub fn new(owner: &'a Owner, identity: &'a str, aliases: &'a Aliases) -> Self {
        Self { owner, identity, aliases, contribution: Contribution::default() }
    }

    /// The UUID of the owner's row with this key, which is unique among its rows of a table.
    pub fn uuid<R: TableRow>(&self, key: &str) -> Uuid {
        self.aliases.resolve(row_uuid(R::TABLE, self.owner.kind(), self.identity, key))
    }

    /// The UUID of another owner's row.
    pub fn foreign<R: TableRow>(&self, kind: &str, identity: &str, key: &str) -> Uuid {
        self.aliases.resolve(row_uuid(R::TABLE, kind, identity, key))
    }

    /// The UUID of one of the cluster's rows.
    pub fn of_cluster<R: TableRow>(&self, key: &str) -> Uuid {
        self.foreign::<R>("Cluster", "cluster", key)
    }

    /// The `external_ids` of the owner's rows.
    pub fn mark(&self, more: &[(&str, &str)]) -> StringMap {
        self.owner.mark(more)
    }

    /// Adds a row; its sets of references are filled by [`Draft::member`].
    pub fn row<R: TableRow>(&mut self, key: &str, row: &R) -> Uuid {
        self.row_as(self.identity, key, row)
    }

    /// Adds a row with another identity than the owner's: one that outlives the object.
    pub fn row_as<R: TableRow>(&mut self, identity: &str, key: &str, row: &R) -> Uuid {
        let identity = self.aliases.identity(row_uuid(R::TABLE, self.owner.kind(), identity, key));
        let uuid = self.aliases.resolve(identity);
        let mut values = row.to_sparse_row().0;
        if uuid != identity
            && let Some(marks) = values.get_mut("external_ids")
        {
            let pairs = marks.pairs().iter().cloned();
            let stands_for = (crate::identity::STANDS_FOR.to_owned().to_atom(), identity.to_string().to_atom());
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

    /// Adds a pair to a map column of any row.
    pub fn pair<R: TableRow>(&mut self, column: Column<R, StringMap>, of: Uuid, key: &str, value: &str) {
        let column = ColumnRef { row: RowId { table: R::TABLE, uuid: of }, column: column.name() };
        self.contribution.members.push(Member { column, atom: maps::member(key, value) });
    }

    /// Records why a part is left out; of several refusals the first is reported.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.contribution.refusal.get_or_insert(refusal);
    }

    /// Adds a row, and its membership in a parent: a port of a switch, a route of a router.
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

    /// Records that the rows name a selector.
    pub fn name(&mut self, words: Name) {
        self.contribution.names.push(words);
    }

    /// The rows, memberships and refusals so far.
    pub fn finish(self) -> Contribution {
        self.contribution
    }
}
