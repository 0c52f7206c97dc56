//! The server's state from its `_Server` database: connected, leader, cluster ID, raft index.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::read::Shared;
use crate::replica::{OutOfSync, Replica};
use crate::schema::{DatabaseSchema, TableSchema};
use crate::update::read_updates;

/// Name of the server's database about databases, and of our monitor on it.
pub(crate) const SERVER: &str = "_Server";

fn tables() -> &'static [Arc<TableSchema>] {
    static TABLES: OnceLock<Vec<Arc<TableSchema>>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let optional = |key: &str| json!({"type": {"key": key, "min": 0}});
        let schema = json!({"name": SERVER, "tables": {"Database": {"columns": {
            "name": {"type": "string"}, "model": {"type": "string"}, "connected": {"type": "boolean"},
            "leader": {"type": "boolean"}, "schema": optional("string"), "cid": optional("uuid"),
            "index": optional("integer")}}}});
        DatabaseSchema::parse(&schema)
            .map(|schema| schema.tables.into_values().map(Arc::new).collect())
            .unwrap_or_default()
    })
}

/// The `<monitor-requests>` of the `_Server` database.
pub(crate) fn requests() -> Value {
    json!({"Database": [{"columns": ["name", "model", "connected", "leader", "schema", "cid", "index"]}]})
}

/// What `_Server` says about one database.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DatabaseState {
    pub(crate) clustered: bool,
    pub(crate) connected: bool,
    pub(crate) leader: bool,
    pub(crate) schema: Option<String>,
    pub(crate) cluster: Option<String>,
    pub(crate) index: Option<i64>,
}

/// Replica of the `_Server` database.
#[derive(Debug)]
pub(crate) struct ServerView {
    replica: Replica,
    shared: Shared,
}

impl ServerView {
    pub(crate) fn new() -> Self {
        Self { replica: Replica::new(tables(), &[]), shared: Shared::new() }
    }

    pub(crate) fn apply(&mut self, updates: &str) -> Result<(), ServerViewError> {
        let updates = read_updates(updates, tables(), &mut self.shared)?;
        self.replica.apply(updates, &mut Vec::new())?;
        Ok(())
    }

    /// State of a database; `None` if the server does not have it.
    pub(crate) fn database_state(&self, database: &str) -> Option<DatabaseState> {
        let snapshot = self.replica.snapshot();
        let table = snapshot.table("Database")?;
        let row = table.iter().find(|row| row.text("name").as_deref() == Some(database))?;
        Some(DatabaseState {
            clustered: row.text("model").as_deref() == Some("clustered"),
            connected: row.boolean("connected").unwrap_or(false),
            leader: row.boolean("leader").unwrap_or(false),
            schema: row.text("schema"),
            cluster: row.get("cid").filter(|cid| !cid.is_empty()).map(|cid| cid.to_string()),
            index: row.integer("index"),
        })
    }
}

/// An update of `_Server` could not be applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerViewError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    OutOfSync(#[from] OutOfSync),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_change_the_state_of_a_database() {
        let mut view = ServerView::new();
        let uuid = "36bef046-7da7-43a5-905a-c17899216fcb";
        view.apply(&json!({"Database": {uuid: {"initial": {"name": "NB", "model": "clustered", "connected": true, "leader": true, "index": 7}}}}).to_string()).unwrap();
        let database = view.database_state("NB").unwrap();
        assert!(database.leader && database.clustered && database.index == Some(7));
        view.apply(&json!({"Database": {uuid: {"modify": {"leader": false, "index": 8}}}}).to_string()).unwrap();
        let database = view.database_state("NB").unwrap();
        assert!(!database.leader && database.connected && database.index == Some(8));
        assert!(view.database_state("SB").is_none());
    }
}
