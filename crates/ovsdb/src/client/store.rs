//! What the client's users see, shared between them and the session that feeds it: replica, schema, status.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use tokio::sync::{Notify, watch};

use crate::client::plan::{Missing, Plan};
use crate::operation::Condition;
use crate::replica::{Change, Changes, OutOfStep, Pending, Replica, Snapshot};
use crate::schema::DatabaseSchema;
use crate::update::TableUpdate;

/// How the client stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether a server serves us now and the replica follows it.
    pub connected: bool,
    /// The server, as it was named.
    pub remote: Option<String>,
    /// How many sessions there have been: one more after each reconnection.
    pub sessions: u64,
    /// How often another raft cluster has taken the place of the one that was known.
    pub replacements: u64,
    /// Why the last session or try ended.
    pub last_error: Option<String>,
    /// What was asked for and the server does not have.
    pub missing: Vec<Missing>,
    /// Locks that are held.
    pub locks: Vec<String>,
}

/// The replica and what belongs to it.
#[derive(Debug, Default)]
struct Store {
    replica: Replica,
    schema: Option<Arc<DatabaseSchema>>,
    readers: Vec<Weak<Reader>>,
}

/// One subscriber's share.
#[derive(Debug, Default)]
struct Reader {
    pending: Mutex<Pending>,
    arrived: Notify,
}

/// Shared between the client's handles and its driver.
#[derive(Debug)]
pub(crate) struct SharedState {
    store: RwLock<Store>,
    pub(crate) status: watch::Sender<Status>,
    /// The conditions of each table as they are wanted now.
    pub(crate) conditions: Mutex<Vec<Option<Vec<Condition>>>>,
    /// The locks that are wanted: asked for again in every session.
    locks: Mutex<BTreeSet<String>>,
}

impl SharedState {
    pub(crate) fn new(conditions: Vec<Option<Vec<Condition>>>) -> Self {
        Self {
            store: RwLock::default(),
            status: watch::Sender::new(Status::default()),
            conditions: Mutex::new(conditions),
            locks: Mutex::default(),
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn want_lock(&self, name: &str, wanted: bool) {
        let mut locks = lock(&self.locks);
        if wanted {
            locks.insert(name.to_owned());
        } else {
            locks.remove(name);
        }
    }

    pub(crate) fn wanted_locks(&self) -> Vec<String> {
        lock(&self.locks).iter().cloned().collect()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.read().replica.snapshot()
    }

    pub(crate) fn schema(&self) -> Option<Arc<DatabaseSchema>> {
        self.read().schema.clone()
    }

    /// Takes a server's schema and what is to be monitored under it. Rows that are there stay, under the new schema.
    /// Returns whether it is another schema than before.
    pub(crate) fn adopt(&self, schema: Arc<DatabaseSchema>, plan: &Plan) -> bool {
        let mut store = self.write();
        let changed = store.schema.as_ref() != Some(&schema);
        if changed {
            store.replica = store.replica.migrated(&plan.tables, &plan.indexes);
            for reader in store.readers.iter().filter_map(Weak::upgrade) {
                lock(&reader.pending).migrate(&plan.tables);
            }
            store.schema = Some(schema);
        }
        changed
    }

    /// Applies updates, or a whole dump, and tells the readers.
    pub(crate) fn apply(&self, updates: Vec<TableUpdate>, whole: bool) -> Result<(), OutOfStep> {
        let mut store = self.write();
        let mut changes = Vec::new();
        let applied = if whole {
            store.replica.replace(updates, &mut changes)
        } else {
            store.replica.apply(updates, &mut changes)
        };
        // Under the same lock as the change itself: a reader's snapshot and its changes always fit together.
        // What was done is told even if the rest could not be.
        store.tell(&changes);
        applied
    }

    pub(crate) fn subscribe(self: &Arc<Self>) -> Subscription {
        let reader = Arc::new(Reader::default());
        let mut store = self.write();
        // A new reader begins with all that is there.
        let all: Vec<Change> = store.replica.as_changes();
        {
            let mut pending = lock(&reader.pending);
            pending.migrate(&store.replica.schemas());
            pending.add(&all);
        }
        store.readers.retain(|other| other.strong_count() > 0);
        store.readers.push(Arc::downgrade(&reader));
        Subscription { reader, state: self.clone() }
    }
}

impl Store {
    fn tell(&mut self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        for reader in self.readers.iter().filter_map(Weak::upgrade) {
            lock(&reader.pending).add(changes);
            reader.arrived.notify_one();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream of changes. The first batch is all that is there; after that, what changed since the last batch. A reader
/// who is slow sees fewer, larger batches, with at most one change for each row.
#[derive(Debug)]
pub struct Subscription {
    reader: Arc<Reader>,
    state: Arc<SharedState>,
}

impl Subscription {
    /// Waits for changes and takes all there are. May be given up at any time.
    pub async fn next(&mut self) -> Changes {
        loop {
            if let Some(changes) = self.take() {
                return changes;
            }
            self.reader.arrived.notified().await;
        }
    }

    /// Takes the changes there are, without waiting.
    pub fn take(&mut self) -> Option<Changes> {
        self.look().0
    }

    /// Takes the changes there are, without waiting, and says how the tables are after them: they show no change that was
    /// not told, which [`Client::snapshot`](crate::client::Client::snapshot) a moment later may.
    pub fn look(&mut self) -> (Option<Changes>, Snapshot) {
        let store = self.state.read();
        let mut pending = lock(&self.reader.pending);
        let snapshot = store.replica.snapshot();
        if pending.is_empty() {
            return (None, snapshot);
        }
        let changes = pending.take(snapshot.clone());
        ((!changes.changes.is_empty()).then_some(changes), snapshot)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::config::TableMonitor;
    use crate::replica::Row;
    use crate::update::RowUpdate;
    use crate::uuid::Uuid;

    /// Whoever plans with a snapshot must have been told of all that it shows.
    #[test]
    fn a_look_shows_what_was_told_and_no_more() {
        let schema = json!({"name": "T", "tables": {"A": {"columns": {"name": {"type": "string"}}}}});
        let schema = Arc::new(DatabaseSchema::parse(&schema).unwrap());
        let plan = Plan::new(&schema, &[TableMonitor::new("A")]);
        let state = Arc::new(SharedState::new(vec![None]));
        state.adopt(schema, &plan);
        let insert = |number: u8| {
            let row = Row::from_fields(&mut Default::default(), &plan.tables[0]);
            let rows = vec![(Uuid::from_bytes([number; 16]), RowUpdate::Whole(row))];
            state.apply(vec![TableUpdate { table: 0, rows }], false).unwrap();
        };
        let mut subscription = state.subscribe();
        insert(1);
        let (told, shown) = subscription.look();
        insert(2);
        assert_eq!((told.unwrap().changes.len(), shown.table("A").unwrap().len()), (1, 1));
        assert_eq!(state.snapshot().table("A").unwrap().len(), 2);
        let (told, shown) = subscription.look();
        assert_eq!((told.unwrap().changes.len(), shown.table("A").unwrap().len()), (1, 2));
        let (told, shown) = subscription.look();
        assert_eq!((told.is_none(), shown.table("A").unwrap().len()), (true, 2));
    }
}
