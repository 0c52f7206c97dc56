//! The client as its users hold it, and the driver that keeps a session for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::client::backoff::Waits;
use crate::client::config::Config;
use crate::client::end::SessionEnd;
use crate::client::error::CallError;
use crate::client::session::{CHANGE_CONDITIONS, Call, Memory, Session};
use crate::client::store::{SharedState, Status, Subscription};
use crate::operation::{Condition, TransactParameters};
use crate::replica::Snapshot;
use crate::schema::DatabaseSchema;
use crate::transaction::{MALFORMED, Outcome, Refusal, ServerError, Transaction};

/// A client of one database. Clones share one session and one replica; it ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<Config>,
    state: Arc<SharedState>,
    calls: mpsc::Sender<Call>,
}

impl Client {
    /// Starts a client on the current runtime. It connects by itself and keeps trying; see [`Client::connected`].
    pub fn start(config: Config) -> Self {
        let conditions = config.tables.iter().map(|table| table.conditions.clone()).collect();
        let state = Arc::new(SharedState::new(conditions));
        // Deep enough for bursts; beyond it, callers wait.
        let (calls, receiver) = mpsc::channel(256);
        let config = Arc::new(config);
        tokio::spawn(drive(config.clone(), state.clone(), receiver));
        Self { config, state, calls }
    }

    /// The tables as they are now.
    pub fn snapshot(&self) -> Snapshot {
        self.state.snapshot()
    }

    /// A stream of changes, beginning with all that is there.
    pub fn subscribe(&self) -> Subscription {
        self.state.subscribe()
    }

    /// The server's schema, once there was a session.
    pub fn schema(&self) -> Option<Arc<DatabaseSchema>> {
        self.state.schema()
    }

    /// How the client stands, to look at or to watch.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.state.status.subscribe()
    }

    /// Waits until a server serves us and the replica has what it monitors.
    pub async fn connected(&self, limit: Duration) -> Result<(), CallError> {
        let mut status = self.status();
        let waiting = status.wait_for(|status| status.connected);
        match timeout(limit, waiting).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(CallError::Closed),
            Err(_) => Err(self.not_sent(limit)),
        }
    }

    fn not_sent(&self, waited: Duration) -> CallError {
        let last = self.state.status.borrow().last_error.clone();
        CallError::NotSent { waited, last: last.unwrap_or_else(|| "none yet".into()) }
    }

    /// Carries a transaction out, with the usual patience.
    pub async fn transact(&self, transaction: &Transaction) -> Result<Outcome, CallError> {
        self.transact_within(transaction, self.config.call_timeout).await
    }

    /// Carries a transaction out within a time.
    pub async fn transact_within(&self, transaction: &Transaction, limit: Duration) -> Result<Outcome, CallError> {
        let answer = self.call("transact", &self.parameters(transaction, false), limit).await?;
        transaction.read_answer(results(answer)?).map_err(|refusal| {
            if refusal.error.error == MALFORMED {
                CallError::Lost { why: refusal.to_string() }
            } else {
                CallError::Refused(refusal)
            }
        })
    }

    /// Rehearses a transaction: the server carries it out, tells the results and takes it back.
    pub async fn dry_run(&self, transaction: &Transaction) -> Result<Outcome, CallError> {
        let answer = self.call("transact", &self.parameters(transaction, true), self.config.call_timeout).await?;
        let mut results = results(answer)?;
        // The abort at the end is ours.
        let ours = results.get(transaction.operations().len()).and_then(ServerError::read);
        if ours.is_some_and(|error| error.error == "aborted") {
            results.truncate(transaction.operations().len());
        }
        Ok(transaction.read_answer(results)?)
    }

    /// Carries out operations that are written as RFC 7047 has them, and returns the server's results as they came.
    /// Rehearsed, they are taken back, and what only a commit checks is not checked.
    pub async fn transact_raw(&self, operations: &[Value], dry_run: bool) -> Result<Vec<Value>, CallError> {
        let (database, abort) = (Value::from(self.config.database.as_str()), serde_json::json!({ "op": "abort" }));
        let rehearsal = dry_run.then_some(&abort);
        let params: Vec<&Value> = std::iter::once(&database).chain(operations).chain(rehearsal).collect();
        let mut results = results(self.call("transact", &params, self.config.call_timeout).await?)?;
        // The abort at the end is ours.
        let ours = results.get(operations.len()).and_then(ServerError::read);
        if dry_run && ours.is_some_and(|error| error.error == "aborted") {
            results.truncate(operations.len());
        }
        let refused = results.iter().enumerate().find_map(|(place, result)| Some((place, ServerError::read(result)?)));
        if let Some((place, error)) = refused {
            let operation = operations.get(place).map(|operation| {
                let words = ["op", "table"].iter().filter_map(|key| operation.get(key)?.as_str());
                words.collect::<Vec<_>>().join(" ")
            });
            let place = operation.is_some().then_some(place);
            return Err(CallError::Refused(Refusal { place, owner: None, operation, error }));
        }
        if results.len() < operations.len() {
            let why = format!("{} results for {} operations", results.len(), operations.len());
            return Err(CallError::Lost { why });
        }
        Ok(results)
    }

    fn parameters<'a>(&'a self, transaction: &'a Transaction, dry_run: bool) -> TransactParameters<'a> {
        TransactParameters { database: &self.config.database, operations: transaction.operations(), dry_run }
    }

    /// Changes which rows of a table are monitored; returns when the server has agreed.
    pub async fn set_conditions(&self, table: &str, conditions: Option<Vec<Condition>>) -> Result<(), CallError> {
        let place = self.config.tables.iter().position(|monitor| monitor.table == table);
        let Some(place) = place else {
            let error =
                ServerError { error: "unknown table".into(), details: Some(format!("{table} is not monitored")) };
            return Err(CallError::Refused(Refusal { place: None, owner: None, operation: None, error }));
        };
        let wish = |conditions: &Option<Vec<Condition>>| {
            let mut wanted = self.state.conditions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::replace(&mut wanted[place], conditions.clone())
        };
        let before = wish(&conditions);
        // What is wanted of all tables is written when it is sent.
        let answer = self.call(CHANGE_CONDITIONS, &serde_json::json!([]), self.config.call_timeout).await;
        if matches!(answer, Err(CallError::Failed { .. })) {
            // A refused wish must not come back with the next session.
            wish(&before);
        }
        answer.map(|_| ())
    }

    /// Asks for a lock; true if it is held now, else [`Status::locks`] tells when it is.
    ///
    /// After a reconnection it is asked for again; meanwhile somebody else may have it.
    pub async fn lock(&self, name: &str) -> Result<bool, CallError> {
        self.state.want_lock(name, true);
        let answer = self.call("lock", &[name], self.config.call_timeout).await?;
        Ok(answer.get("locked").and_then(Value::as_bool) == Some(true))
    }

    /// Takes a lock from whoever holds it.
    pub async fn steal(&self, name: &str) -> Result<(), CallError> {
        self.state.want_lock(name, true);
        self.call("steal", &[name], self.config.call_timeout).await.map(|_| ())
    }

    /// Gives a lock back, or stops waiting for it.
    pub async fn unlock(&self, name: &str) -> Result<(), CallError> {
        self.state.want_lock(name, false);
        self.call("unlock", &[name], self.config.call_timeout).await?;
        self.state.status.send_modify(|status| status.locks.retain(|other| other != name));
        Ok(())
    }

    /// The databases that the server has.
    pub async fn databases(&self) -> Result<Vec<String>, CallError> {
        let answer = self.call("list_dbs", &serde_json::json!([]), self.config.call_timeout).await?;
        Ok(answer.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(String::from)).collect())
    }

    async fn call(
        &self,
        method: &'static str,
        params: &impl serde::Serialize,
        limit: Duration,
    ) -> Result<Value, CallError> {
        let params: Box<RawValue> =
            to_raw_value(params).map_err(|error| CallError::Lost { why: format!("it cannot be written: {error}") })?;
        let (reply, answer) = oneshot::channel();
        let sent = Arc::new(AtomicBool::new(false));
        let call = Call { method, params, reply, sent: sent.clone() };
        let calling = async {
            self.calls.send(call).await.map_err(|_| CallError::Closed)?;
            answer.await.unwrap_or(Err(CallError::Closed))
        };
        match timeout(limit, calling).await {
            Ok(answer) => answer,
            Err(_) if sent.load(Ordering::SeqCst) => {
                Err(CallError::Lost { why: format!("no answer within {limit:?}") })
            }
            Err(_) => Err(self.not_sent(limit)),
        }
    }
}

fn results(answer: Value) -> Result<Vec<Value>, CallError> {
    match answer {
        Value::Array(results) => Ok(results),
        other => Err(CallError::Lost { why: format!("the server answered with {other} instead of results") }),
    }
}

/// Keeps a session, for as long as there are handles.
async fn drive(config: Arc<Config>, state: Arc<SharedState>, mut calls: mpsc::Receiver<Call>) {
    let mut memory = Memory::default();
    let mut queued = VecDeque::new();
    let mut waits = Waits::new(config.backoff);
    loop {
        // One round over all servers, and only then a pause.
        for remote in &config.remotes {
            let end = match Session::open(&config, &state, &mut memory, remote).await {
                Ok(mut session) => {
                    let begun = Instant::now();
                    state.status.send_modify(|status| {
                        status.connected = true;
                        status.sessions += 1;
                        status.remote = Some(remote.to_string());
                    });
                    tracing::debug!(%remote, database = config.database, "connected");
                    let end = session.serve(&mut calls, &mut queued).await;
                    // A server that is left at once each time is no progress.
                    if begun.elapsed() >= config.backoff.most {
                        waits.reset();
                    }
                    end
                }
                Err(end) => end,
            };
            let closed = matches!(end, SessionEnd::Closed);
            tracing::debug!(%remote, database = config.database, reason = %end, "session ended");
            state.status.send_modify(|status| {
                status.connected = false;
                status.remote = None;
                status.last_error = Some(format!("{remote}: {end}"));
            });
            // A replica that cannot be trusted is compared with a whole dump, not continued.
            if matches!(end, SessionEnd::Malformed(_) | SessionEnd::MonitorDropped | SessionEnd::SchemaChanged) {
                memory.last_transaction = None;
            }
            if closed {
                return;
            }
        }
        if let Some(cluster) = memory.replacement.end_round(config.remotes.len(), Instant::now()) {
            tracing::warn!(
                database = config.database,
                former = memory.cluster,
                cluster,
                "the database was replaced by that of a new cluster; starting over from it"
            );
            memory.start_over();
            waits.reset();
            state.status.send_modify(|status| status.replacements += 1);
            continue;
        }
        if !pause(waits.next(), &mut calls, &mut queued).await {
            return;
        }
    }
}

/// Waits, collecting calls meanwhile; false if there are no handles any more.
async fn pause(wait: Duration, calls: &mut mpsc::Receiver<Call>, queued: &mut VecDeque<Call>) -> bool {
    let waiting = sleep(wait);
    tokio::pin!(waiting);
    // Those who have given up need no place.
    queued.retain(|call| !call.reply.is_closed());
    loop {
        tokio::select! {
            () = &mut waiting => return true,
            call = calls.recv() => match call {
                Some(call) => queued.push_back(call),
                None => return false,
            },
        }
    }
}
