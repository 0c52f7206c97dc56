//! State shared between the client handles and the session: replica, schema, status.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use tokio::sync::{Notify, watch};

use crate::client::plan::{Missing, Plan};
use crate::client::replacement::Successor;
use crate::operation::Condition;
use crate::replica::{Change, Changes, OutOfSync, Pending, Replica, Snapshot};
use crate::schema::DatabaseSchema;
use crate::update::TableUpdate;

/// State of the connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether a session is established and the replica is complete.
    pub connected: bool,
    /// The connected server, as configured.
    pub remote: Option<String>,
    /// Number of sessions so far: one more after each reconnect.
    pub sessions: u64,
    /// How often the raft cluster was replaced by a new one.
    pub replacements: u64,
    /// Why the last session or connection attempt ended.
    pub last_error: Option<String>,
    /// Requested tables and columns that the server does not have.
    pub missing: Vec<Missing>,
    /// Locks held by this session.
    pub locks: Vec<String>,
}

/// The replica, its schema and its subscribers.
#[derive(Debug, Default)]
struct Store {
    replica: Replica,
    schema: Option<Arc<DatabaseSchema>>,
    readers: Vec<Weak<Reader>>,
}

/// Changes that one subscription has not taken yet.
#[derive(Debug, Default)]
struct Reader {
    pending: Mutex<Pending>,
    arrived: Notify,
}

/// Shared between the client handles and the driver task.
#[derive(Debug)]
pub(crate) struct SharedState {
    store: RwLock<Store>,
    pub(crate) status: watch::Sender<Status>,
    /// Requested conditions of each table.
    pub(crate) conditions: Mutex<Vec<Option<Vec<Condition>>>>,
    /// Requested locks; each session requests them again.
    locks: Mutex<BTreeSet<String>>,
    /// The cluster that is expected to replace the known one.
    successor: Mutex<Successor>,
}

impl SharedState {
    pub(crate) fn new(conditions: Vec<Option<Vec<Condition>>>) -> Self {
        Self {
            store: RwLock::default(),
            status: watch::Sender::new(Status::default()),
            conditions: Mutex::new(conditions),
            locks: Mutex::default(),
            successor: Mutex::default(),
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_successor(&self, successor: Successor) {
        *lock(&self.successor) = successor;
    }

    pub(crate) fn successor(&self) -> Successor {
        lock(&self.successor).clone()
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

    /// Sets the schema and the monitored tables; existing rows are migrated to it. Returns whether the schema changed.
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

    /// Applies updates, or a full dump, and notifies the subscribers.
    pub(crate) fn apply(&self, updates: Vec<TableUpdate>, whole: bool) -> Result<(), OutOfSync> {
        let mut store = self.write();
        let mut changes = Vec::new();
        let applied = if whole {
            store.replica.replace(updates, &mut changes)
        } else {
            store.replica.apply(updates, &mut changes)
        };
        // Under the lock of the change itself: the snapshot and the changes of a subscriber always match.
        // Notify about applied changes even if a later one failed.
        store.notify(&changes);
        applied
    }

    pub(crate) fn subscribe(self: &Arc<Self>) -> Subscription {
        let reader = Arc::new(Reader::default());
        let mut store = self.write();
        // A new subscriber starts with all rows.
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
    fn notify(&mut self, changes: &[Change]) {
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

/// A stream of changes. The first batch is all existing rows; each later one is what changed since the last batch. A
/// slow reader gets fewer, larger batches, with at most one change per row.
#[derive(Debug)]
pub struct Subscription {
    reader: Arc<Reader>,
    state: Arc<SharedState>,
}

impl Subscription {
    /// Waits for changes and takes all of them. Cancel-safe.
    pub async fn next(&mut self) -> Changes {
        loop {
            if let Some(changes) = self.take() {
                return changes;
            }
            self.reader.arrived.notified().await;
        }
    }

    /// Takes all changes, without waiting; `None` if there are none.
    pub fn take(&mut self) -> Option<Changes> {
        self.take_with_snapshot().0
    }

    /// Takes all changes, without waiting, and the tables after exactly these changes. A later
    /// [`Client::snapshot`](crate::client::Client::snapshot) may show more.
    pub fn take_with_snapshot(&mut self) -> (Option<Changes>, Snapshot) {
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

    /// A transaction may be planned only from changes that were taken.
    #[test]
    fn the_snapshot_contains_exactly_the_taken_changes() {
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
        let (taken, snapshot) = subscription.take_with_snapshot();
        insert(2);
        assert_eq!((taken.unwrap().changes.len(), snapshot.table("A").unwrap().len()), (1, 1));
        assert_eq!(state.snapshot().table("A").unwrap().len(), 2);
        let (taken, snapshot) = subscription.take_with_snapshot();
        assert_eq!((taken.unwrap().changes.len(), snapshot.table("A").unwrap().len()), (1, 2));
        let (taken, snapshot) = subscription.take_with_snapshot();
        assert_eq!((taken.is_none(), snapshot.table("A").unwrap().len()), (true, 2));
    }
}
