//! Tells our own changes of our rows from those of another client.
//!
//! Changes come without an author. Ours come with a new sequence value, and are of the rows that were sent last.

use std::collections::BTreeSet;

use ovsdb::replica::{Changes, RowView};
use ovsdb::transaction::Transaction;
use topology::identity::{Owner, RowId};
use topology::plan::{owner_of, rows_of, table_name};

use crate::databases::has_new_sequence;

/// The rows of the last transaction.
#[derive(Debug, Default)]
pub(crate) struct Authorship {
    sent: BTreeSet<RowId>,
    /// The session with the database when it was sent; none if there was none.
    session: Option<u64>,
}

/// Changed rows of ours, and their owners.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) owners: BTreeSet<Owner>,
    pub(crate) rows: BTreeSet<RowId>,
}

impl Changed {
    fn add(&mut self, owner: Owner, row: RowId) {
        self.owners.insert(owner);
        self.rows.insert(row);
    }
}

impl Authorship {
    /// A transaction is sent, in this session. All changes before it must have been classified.
    pub(crate) fn sent(&mut self, transaction: &Transaction, session: Option<u64>) {
        *self = Self { sent: rows_of(transaction), session };
    }

    /// The last transaction was not committed, and never will be.
    pub(crate) fn not_committed(&mut self) {
        self.sent.clear();
    }

    /// Returns what another client changed, and what is ambiguous: a new session reports all missed changes at once, so that
    /// a row that we wrote may also have been changed by another client.
    pub(crate) fn classify(&self, changes: &Changes, session: Option<u64>) -> (Changed, Changed) {
        let (mut foreign, mut ambiguous) = (Changed::default(), Changed::default());
        // Without a new sequence value no change is ours: the transaction is still to come.
        let ours = has_new_sequence(changes);
        let same = session.is_some() && session == self.session;
        for change in &changes.changes {
            let Some(table) = changes.snapshot.table_at(change.table) else { continue };
            let schema = table.schema();
            let Some(table) = table_name(&schema.name).filter(|name| *name != "NB_Global") else { continue };
            let id = RowId { table, uuid: change.uuid };
            let sent = ours && self.sent.contains(&id);
            if sent && same {
                continue;
            }
            for row in [&change.before, &change.after].into_iter().flatten() {
                let Some(owner) = owner_of(RowView { uuid: change.uuid, row, schema }) else { continue };
                if sent { &mut ambiguous } else { &mut foreign }.add(owner, id);
            }
        }
        (foreign, ambiguous)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ovsdb::memory::Database;
    use ovsdb::operation::Condition;
    use ovsdb::replica::{Change, Pending, Replica};
    use ovsdb::transaction::Row;
    use ovsdb::uuid::Uuid;
    use topology::plan::TABLES;

    use super::*;
    use crate::databases::SEQUENCE;

    const GLOBAL: Uuid = Uuid::from_bytes([7; 16]);
    const JOIN: Uuid = Uuid::from_bytes([1; 16]);
    const GROUP: Uuid = Uuid::from_bytes([2; 16]);

    /// A database, its replica, and unread changes.
    struct World {
        database: Database,
        replica: Replica,
        pending: Pending,
        number: u32,
    }

    impl World {
        fn new() -> Self {
            let schema = ovn_schema::northbound::schema();
            let replica = Replica::of(&schema, &TABLES);
            let mut world = Self { database: Database::new(schema), replica, pending: Pending::default(), number: 0 };
            let mut begin = Transaction::new();
            begin.insert_with_uuid("NB_Global", GLOBAL, Row::new());
            world.commit(&begin);
            world.changes();
            world
        }

        fn commit(&mut self, transaction: &Transaction) {
            let (_, changes) = self.database.transact_with_changes(&BTreeSet::new(), transaction.operations());
            let before = self.replica.snapshot();
            self.replica.feed(&changes);
            let after = self.replica.snapshot();
            for change in changes {
                let Some(table) = after.tables().position(|table| table.schema().name == change.table) else {
                    continue;
                };
                let row = |at: &ovsdb::replica::Snapshot| at.table_at(table)?.row(change.uuid).cloned();
                let (before, after) = (row(&before), row(&after));
                self.pending.add(&[Change { table, uuid: change.uuid, before, after }]);
            }
        }

        /// Commits as the controller does: with a new sequence value.
        fn commit_ours(&mut self, transaction: &Transaction) {
            self.number += 1;
            let mut guarded = transaction.clone();
            guarded.set_key("NB_Global", GLOBAL, "external_ids", SEQUENCE, &format!("c1:{}", self.number));
            self.commit(&guarded);
        }

        fn changes(&mut self) -> Changes {
            self.pending.take(self.replica.snapshot())
        }
    }

    fn marked(row: Row, more: &str) -> Row {
        let marks = Owner::Cluster.mark(&[("more", more)]);
        row.map("external_ids", marks.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    fn insert(table: &str, uuid: Uuid, name: &str) -> Transaction {
        let mut transaction = Transaction::new();
        transaction.insert_with_uuid(table, uuid, marked(Row::new().text("name", name), ""));
        transaction
    }

    fn change(table: &str, uuid: Uuid) -> Transaction {
        let mut transaction = Transaction::new();
        transaction.update(table, vec![Condition::uuid(uuid)], marked(Row::new(), "x"));
        transaction
    }

    fn rows(of: &[(&'static str, Uuid)]) -> BTreeSet<RowId> {
        of.iter().map(|(table, uuid)| RowId { table, uuid: *uuid }).collect()
    }

    const SWITCH: (&str, Uuid) = ("Logical_Switch", JOIN);
    const PORTS: (&str, Uuid) = ("Port_Group", GROUP);

    /// Also the very first transaction.
    #[test]
    fn rows_of_the_sent_transaction_are_ours() {
        let mut world = World::new();
        let mut authorship = Authorship::default();
        let first = insert("Logical_Switch", JOIN, "join");
        authorship.sent(&first, Some(1));
        world.commit_ours(&first);
        assert_eq!(authorship.classify(&world.changes(), Some(1)), Default::default());
        // The same row, a moment later, without a new sequence value.
        world.commit(&change("Logical_Switch", JOIN));
        let (foreign, ambiguous) = authorship.classify(&world.changes(), Some(1));
        assert_eq!((foreign.rows, foreign.owners.len()), (rows(&[SWITCH]), 1));
        assert_eq!(ambiguous, Changed::default());
    }

    #[test]
    fn another_clients_change_before_our_commit_does_not_make_it_foreign() {
        let mut world = World::new();
        let mut authorship = Authorship::default();
        world.commit_ours(&insert("Port_Group", GROUP, "group"));
        world.changes();
        let sent = insert("Logical_Switch", JOIN, "join");
        authorship.sent(&sent, Some(1));
        world.commit(&change("Port_Group", GROUP));
        assert_eq!(authorship.classify(&world.changes(), Some(1)).0.rows, rows(&[PORTS]));
        world.commit_ours(&sent);
        assert_eq!(authorship.classify(&world.changes(), Some(1)), Default::default());
    }

    /// The connection was lost after a transaction was sent: its rows are compared again, without a report.
    #[test]
    fn a_new_session_makes_the_sent_rows_ambiguous() {
        let mut world = World::new();
        let mut authorship = Authorship::default();
        world.commit_ours(&insert("Port_Group", GROUP, "group"));
        world.changes();
        let sent = insert("Logical_Switch", JOIN, "join");
        authorship.sent(&sent, Some(1));
        world.commit_ours(&sent);
        world.commit(&change("Port_Group", GROUP));
        let changes = world.changes();
        for session in [None, Some(2)] {
            let (foreign, ambiguous) = authorship.classify(&changes, session);
            assert_eq!((foreign.rows, ambiguous.rows), (rows(&[PORTS]), rows(&[SWITCH])));
        }
        authorship.not_committed();
        assert_eq!(authorship.classify(&changes, Some(1)).0.rows, rows(&[SWITCH, PORTS]));
    }
}
