//! Start of a session: check the server's state, read the schema, start the monitor, request locks.

use std::sync::Arc;
use std::time::Instant;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::end::{SessionEnd, malformed};
use crate::client::plan::Plan;
use crate::client::server::{self, DatabaseState, SERVER, ServerView};
use crate::client::session::{REPLICA, Reply, Session};
use crate::client::wire::WireError;
use crate::schema::DatabaseSchema;
use crate::transaction::ServerError;

/// The reply of a server that supports the method; `None` from an older server. Any other error ends the session:
/// without what was requested, such as conditions, the replica would be wrong.
fn known(method: &str, answer: Result<Reply, ServerError>) -> Result<Option<Reply>, SessionEnd> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.error == "unknown method" => Ok(None),
        Err(error) => Err(SessionEnd::Refused { method: method.into(), error }),
    }
}

impl Session<'_> {
    pub(super) async fn handshake(&mut self) -> Result<DatabaseSchema, SessionEnd> {
        let limit = self.config.connect_timeout;
        let answer = self.request("monitor_cond", json!([SERVER, SERVER, server::requests()]), limit).await?;
        // A server without a `_Server` database is an old one, and standalone.
        if let Ok(updates) = answer {
            let mut view = ServerView::new();
            view.apply(updates.result()?.get()).map_err(malformed)?;
            self.server = Some(view);
            self.drain_early()?;
            self.await_usable().await?;
        }
        // From now on the server notifies instead of closing the connection; an old one does not support it.
        let _ = self.request("set_db_change_aware", json!([true]), limit).await?;
        // The copy in `_Server` may be older than this for a moment after a conversion.
        let answer = self.request("get_schema", json!([self.config.database]), limit).await?;
        let text = answer.map_err(|_| SessionEnd::NoDatabase(self.config.database.clone()))?;
        let schema: Value = serde_json::from_str(text.result()?.get()).map_err(malformed)?;
        DatabaseSchema::parse(&schema).map_err(malformed)
    }

    /// Waits up to the connect timeout until the server is usable: a follower may be catching up.
    async fn await_usable(&mut self) -> Result<(), SessionEnd> {
        let deadline = Instant::now() + self.config.connect_timeout;
        loop {
            match self.check_server() {
                Ok(_) => return Ok(()),
                Err(behind @ SessionEnd::Behind { .. }) if Instant::now() < deadline => {
                    match self.receive(deadline).await {
                        Ok(text) => self.queue_early(text)?,
                        // Report that it did not catch up, not the timeout.
                        Err(SessionEnd::Wire(WireError::Timeout(_))) => return Err(behind),
                        Err(other) => return Err(other),
                    }
                    self.drain_early()?;
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// Checks the state that the server reports: connected, leader, cluster, raft index.
    pub(super) fn check_server(&mut self) -> Result<DatabaseState, SessionEnd> {
        let name = &self.config.database;
        let database = self.server.as_ref().and_then(|server| server.database_state(name));
        let database = database.ok_or_else(|| SessionEnd::NoDatabase(name.clone()))?;
        if !database.connected {
            return Err(SessionEnd::Disconnected);
        }
        if database.clustered {
            if let (Some(expected), Some(found)) = (&self.resume.cluster, &database.cluster)
                && expected != found
            {
                self.resume.replacement.saw_other(found.clone());
                return Err(SessionEnd::OtherCluster { found: found.clone(), expected: expected.clone() });
            }
            self.resume.replacement.saw_known();
            if self.config.leader_only && !database.leader {
                return Err(SessionEnd::NotLeader);
            }
            if let (Some(has), Some(seen)) = (database.index, self.resume.index)
                && has < seen
            {
                return Err(SessionEnd::Behind { has, seen });
            }
        }
        Ok(database)
    }

    pub(super) async fn monitor(&mut self, schema: DatabaseSchema) -> Result<(), SessionEnd> {
        let schema = Arc::new(schema);
        let plan = Plan::new(&schema, &self.config.tables);
        let other_schema = self.state.adopt(schema, &plan);
        let missing = plan.missing.clone();
        self.state.status.send_modify(|status| status.missing = missing);
        let conditions = self.wanted_conditions();
        let requests = plan.requests(&conditions, true);
        let plain = plan.requests(&conditions, false);
        self.plan = Some(plan);
        // A replica under other conditions or another schema cannot be resumed.
        let same = self.resume.conditions.take().as_ref() == Some(&conditions) && !other_schema;
        let since = self.resume.last_transaction.take().filter(|_| same);
        let database = &self.config.database;
        // While the server writes the dump of a large database, it replies to nothing else.
        let limit = self.config.call_timeout.max(self.config.connect_timeout);
        let zero = "00000000-0000-0000-0000-000000000000";
        let params = json!([database, REPLICA, requests, since.as_deref().unwrap_or(zero)]);
        let newest = self.request("monitor_cond_since", params, limit).await?;
        if let Some(answer) = known("monitor_cond_since", newest)? {
            let (found, last, updates): (bool, String, &RawValue) =
                serde_json::from_str(answer.result()?.get()).map_err(malformed)?;
            self.take(updates, !(found && since.is_some()))?;
            self.resume.last_transaction = Some(last);
        } else {
            let newer = self.request("monitor_cond", json!([database, REPLICA, requests]), limit).await?;
            let answer = match known("monitor_cond", newer)? {
                Some(answer) => answer,
                None => self
                    .request("monitor", json!([database, REPLICA, plain]), limit)
                    .await?
                    .map_err(|error| SessionEnd::Refused { method: "monitor".into(), error })?,
            };
            self.take(answer.result()?, true)?;
        }
        self.resume.conditions = Some(conditions);
        self.store_progress();
        self.drain_early()
    }

    /// Locks belong to a session: request those of the last one again.
    pub(super) async fn request_locks(&mut self) -> Result<(), SessionEnd> {
        for lock in self.state.wanted_locks() {
            let answer = self.request("lock", json!([lock]), self.config.connect_timeout).await?;
            let answer = answer.map_err(|error| SessionEnd::Refused { method: "lock".into(), error })?;
            let locked: Value = serde_json::from_str(answer.result()?.get()).map_err(malformed)?;
            self.note_lock(&lock, locked.get("locked").and_then(Value::as_bool) == Some(true));
        }
        self.drain_early()
    }
}
