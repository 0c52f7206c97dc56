//! How a session begins: whether this server may serve us, its schema, our monitor, our locks.

use std::sync::Arc;
use std::time::Instant;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::end::{SessionEnd, malformed};
use crate::client::plan::Plan;
use crate::client::server::{self, SERVER, ServerView, Standing};
use crate::client::session::{Answer, REPLICA, Session};
use crate::client::wire::WireError;
use crate::schema::DatabaseSchema;
use crate::transaction::ServerError;

/// The answer of a server that knows the method. Any other error ends the session: to go on without what was asked for,
/// such as conditions, would be something else than what was asked for.
fn known(method: &str, answer: Result<Answer, ServerError>) -> Result<Option<Answer>, SessionEnd> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.error == "unknown method" => Ok(None),
        Err(error) => Err(SessionEnd::Refused { method: method.into(), error }),
    }
}

impl Session<'_> {
    pub(super) async fn greet(&mut self) -> Result<DatabaseSchema, SessionEnd> {
        let limit = self.config.connect_timeout;
        let answer = self.ask("monitor_cond", json!([SERVER, SERVER, server::requests()]), limit).await?;
        // A server without a `_Server` database is an old one, and stands alone.
        if let Ok(updates) = answer {
            let mut view = ServerView::new();
            view.apply(updates.result()?.get()).map_err(malformed)?;
            self.server = Some(view);
            self.drain_early()?;
            self.await_standing().await?;
        }
        // From now on the server tells us of changes instead of hanging up; an old one does not know it.
        let _ = self.ask("set_db_change_aware", json!([true]), limit).await?;
        // The copy in `_Server` may be older than this for a moment after a conversion.
        let answer = self.ask("get_schema", json!([self.config.database]), limit).await?;
        let text = answer.map_err(|_| SessionEnd::NoDatabase(self.config.database.clone()))?;
        let schema: Value = serde_json::from_str(text.result()?.get()).map_err(malformed)?;
        DatabaseSchema::parse(&schema).map_err(malformed)
    }

    /// Waits until the server can serve us, for a short while: a follower may be about to catch up.
    async fn await_standing(&mut self) -> Result<(), SessionEnd> {
        let deadline = Instant::now() + self.config.connect_timeout;
        loop {
            match self.judge() {
                Ok(_) => return Ok(()),
                Err(behind @ SessionEnd::Behind { .. }) if Instant::now() < deadline => {
                    match self.receive(deadline).await {
                        Ok(text) => self.early.push_back(text),
                        // It did not catch up in time: that is the reason, not the silence.
                        Err(SessionEnd::Wire(WireError::Timeout(_))) => return Err(behind),
                        Err(other) => return Err(other),
                    }
                    self.drain_early()?;
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// Whether this server may serve us, by its own word.
    pub(super) fn judge(&mut self) -> Result<Standing, SessionEnd> {
        let name = &self.config.database;
        let standing = self.server.as_ref().and_then(|server| server.standing(name));
        let standing = standing.ok_or_else(|| SessionEnd::NoDatabase(name.clone()))?;
        if !standing.connected {
            return Err(SessionEnd::Disconnected);
        }
        if standing.clustered {
            if let (Some(expected), Some(found)) = (&self.memory.cluster, &standing.cluster)
                && expected != found
            {
                self.memory.replacement.saw_other(found.clone());
                return Err(SessionEnd::OtherCluster { found: found.clone(), expected: expected.clone() });
            }
            self.memory.replacement.saw_known();
            if self.config.leader_only && !standing.leader {
                return Err(SessionEnd::NotLeader);
            }
            if let (Some(has), Some(seen)) = (standing.index, self.memory.index)
                && has < seen
            {
                return Err(SessionEnd::Behind { has, seen });
            }
        }
        Ok(standing)
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
        // What was kept under other conditions or another schema does not tell what is missing under these.
        let same = self.memory.conditions.take().as_ref() == Some(&conditions) && !other_schema;
        let since = self.memory.last_transaction.take().filter(|_| same);
        let database = &self.config.database;
        // A dump of a large database takes its time, and the server answers nothing else meanwhile.
        let limit = self.config.call_timeout.max(self.config.connect_timeout);
        let zero = "00000000-0000-0000-0000-000000000000";
        let params = json!([database, REPLICA, requests, since.as_deref().unwrap_or(zero)]);
        let newest = self.ask("monitor_cond_since", params, limit).await?;
        if let Some(answer) = known("monitor_cond_since", newest)? {
            let (found, last, updates): (bool, String, &RawValue) =
                serde_json::from_str(answer.result()?.get()).map_err(malformed)?;
            self.take(updates, !(found && since.is_some()))?;
            self.memory.last_transaction = Some(last);
        } else {
            let newer = self.ask("monitor_cond", json!([database, REPLICA, requests]), limit).await?;
            let answer = match known("monitor_cond", newer)? {
                Some(answer) => answer,
                None => self
                    .ask("monitor", json!([database, REPLICA, plain]), limit)
                    .await?
                    .map_err(|error| SessionEnd::Refused { method: "monitor".into(), error })?,
            };
            self.take(answer.result()?, true)?;
        }
        self.memory.conditions = Some(conditions);
        self.remember();
        self.drain_early()
    }

    /// A lock belongs to a session: what was held in the last one is asked for again.
    pub(super) async fn ask_for_locks(&mut self) -> Result<(), SessionEnd> {
        for lock in self.state.wanted_locks() {
            let answer = self.ask("lock", json!([lock]), self.config.connect_timeout).await?;
            let answer = answer.map_err(|error| SessionEnd::Refused { method: "lock".into(), error })?;
            let locked: Value = serde_json::from_str(answer.result()?.get()).map_err(malformed)?;
            self.note_lock(&lock, locked.get("locked").and_then(Value::as_bool) == Some(true));
        }
        self.drain_early()
    }
}
