//! Who changed rows of ours: the transaction that was sent last, or another client.
//!
//! Changes come without an author. Ours come together with a new sequence value, and name the rows that were sent.

use std::collections::BTreeSet;

use ovsdb::replica::{Changes, RowView};
use ovsdb::transaction::Transaction;
use topology::identity::{Owner, RowId};
use topology::plan::{owner_of, rows_of, table_name};

use crate::databases::has_new_sequence;

/// What was sent last.
#[derive(Debug, Default)]
pub(crate) struct Authorship {
    sent: BTreeSet<RowId>,
    /// The session with the database at that time; none if there was none.
    session: Option<u64>,
}

/// Rows of ours that changed, and whose they are.
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
    /// A transaction is sent, in this session. Everything that changed before must have been judged.
    pub(crate) fn sent(&mut self, transaction: &Transaction, session: Option<u64>) {
        *self = Self { sent: rows_of(transaction), session };
    }

    /// Nothing of what was sent happened, and nothing will.
    pub(crate) fn never_happened(&mut self) {
        self.sent.clear();
    }

    /// What another client changed, and what may be ours or another's: a new session tells what changed meanwhile all at
    /// once, so that a row that we wrote may also have been written by somebody else.
    pub(crate) fn judge(&self, changes: &Changes, session: Option<u64>) -> (Changed, Changed) {
        let (mut foreign, mut doubtful) = (Changed::default(), Changed::default());
        // Without a new value nothing was ours. What was sent is still to come then.
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
                if sent { &mut doubtful } else { &mut foreign }.add(owner, id);
            }
        }
        (foreign, doubtful)
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

    /// A database, its replica, and a reader who is slow.
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

    /// The very first transaction is as much ours as any later one.
    #[test]
    fn what_was_sent_is_ours() {
        let mut world = World::new();
        let mut authorship = Authorship::default();
        let first = insert("Logical_Switch", JOIN, "join");
        authorship.sent(&first, Some(1));
        world.commit_ours(&first);
        assert_eq!(authorship.judge(&world.changes(), Some(1)), Default::default());
        // The same row, a moment later, without a sequence value of ours.
        world.commit(&change("Logical_Switch", JOIN));
        let (foreign, doubtful) = authorship.judge(&world.changes(), Some(1));
        assert_eq!((foreign.rows, foreign.owners.len()), (rows(&[SWITCH]), 1));
        assert_eq!(doubtful, Changed::default());
    }

    /// Somebody else's change that is shown before our transaction does not make that one foreign.
    #[test]
    fn what_is_shown_meanwhile_does_not_disown_what_was_sent() {
        let mut world = World::new();
        let mut authorship = Authorship::default();
        world.commit_ours(&insert("Port_Group", GROUP, "group"));
        world.changes();
        let sent = insert("Logical_Switch", JOIN, "join");
        authorship.sent(&sent, Some(1));
        world.commit(&change("Port_Group", GROUP));
        assert_eq!(authorship.judge(&world.changes(), Some(1)).0.rows, rows(&[PORTS]));
        world.commit_ours(&sent);
        assert_eq!(authorship.judge(&world.changes(), Some(1)), Default::default());
    }

    /// The connection was lost after a transaction was sent: its rows are compared again, and nobody is blamed for them.
    #[test]
    fn a_new_session_leaves_doubt_about_what_was_sent() {
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
            let (foreign, doubtful) = authorship.judge(&changes, session);
            assert_eq!((foreign.rows, doubtful.rows), (rows(&[PORTS]), rows(&[SWITCH])));
        }
        authorship.never_happened();
        assert_eq!(authorship.judge(&changes, Some(1)).0.rows, rows(&[SWITCH, PORTS]));
    }
}
