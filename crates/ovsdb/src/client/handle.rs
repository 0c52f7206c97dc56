//! The client handle, and the driver task that keeps a session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use backoff::Retries;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::client::config::Config;
use crate::client::end::SessionEnd;
use crate::client::error::CallError;
use crate::client::leader_search;
use crate::client::remote::Remote;
use crate::client::remote_list::RemoteList;
use crate::client::replacement::Successor;
use crate::client::session::{CHANGE_CONDITIONS, Call, ResumeState, Session};
use crate::client::store::{SharedState, Status, Subscription};
use crate::operation::{Condition, Operation, TransactParameters};
use crate::replica::Snapshot;
use crate::schema::DatabaseSchema;
use crate::transaction::{MALFORMED, Outcome, Refusal, ServerError, Transaction};

/// A client of one database. Clones share one session and one replica; dropping the last one closes the session.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<Config>,
    state: Arc<SharedState>,
    calls: mpsc::Sender<Call>,
}

impl Client {
    /// Starts a client on the current tokio runtime. It connects in the background and reconnects; see
    /// [`Client::connected`].
    pub fn start(config: Config) -> Self {
        let conditions = config.tables.iter().map(|table| table.conditions.clone()).collect();
        let state = Arc::new(SharedState::new(conditions));
        // Callers wait if more calls are queued.
        let (calls, receiver) = mpsc::channel(256);
        let config = Arc::new(config);
        tokio::spawn(drive(config.clone(), state.clone(), receiver));
        Self { config, state, calls }
    }

    /// The replicated tables at this moment.
    pub fn snapshot(&self) -> Snapshot {
        self.state.snapshot()
    }

    /// A stream of changes; all existing rows come first, as insertions.
    pub fn subscribe(&self) -> Subscription {
        self.state.subscribe()
    }

    /// The server's schema; `None` before the first session.
    pub fn schema(&self) -> Option<Arc<DatabaseSchema>> {
        self.state.schema()
    }

    /// Connection state, to read or to watch.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.state.status.subscribe()
    }

    /// Says which cluster replaced others, e.g. by an administrator's record: it is accepted as soon as a server has it,
    /// without the delay for clusters that appear unexpectedly.
    pub fn expect_successor(&self, successor: Successor) {
        self.state.set_successor(successor);
    }

    /// Waits until a session is established and the replica is complete.
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

    /// Executes a transaction, within [`Config::call_timeout`].
    pub async fn transact(&self, transaction: &Transaction) -> Result<Outcome, CallError> {
        self.transact_within(transaction, self.config.call_timeout).await
    }

    /// Executes a transaction within `limit`.
    pub async fn transact_within(&self, transaction: &Transaction, limit: Duration) -> Result<Outcome, CallError> {
        let answer = self.call("transact", &self.parameters(transaction, false), limit).await;
        let answer = answer.map_err(|error| unsendable(error, transaction))?;
        transaction.read_reply(results(answer)?).map_err(|refusal| {
            if refusal.error.error == MALFORMED {
                CallError::Lost { why: refusal.to_string() }
            } else {
                CallError::Refused(refusal)
            }
        })
    }

    /// The server executes the transaction, returns the results, and rolls it back.
    pub async fn dry_run(&self, transaction: &Transaction) -> Result<Outcome, CallError> {
        let answer = self.call("transact", &self.parameters(transaction, true), self.config.call_timeout).await?;
        let mut results = results(answer)?;
        // The abort at the end was added for the dry run.
        let ours = results.get(transaction.operations().len()).and_then(ServerError::read);
        if ours.is_some_and(|error| error.error == "aborted") {
            results.truncate(transaction.operations().len());
        }
        Ok(transaction.read_reply(results)?)
    }

    /// Executes operations in the JSON of RFC 7047, and returns the server's results unparsed. A dry run is rolled
    /// back, so checks at commit (references, indexes) do not run.
    pub async fn transact_raw(&self, operations: &[Value], dry_run: bool) -> Result<Vec<Value>, CallError> {
        let (database, abort) = (Value::from(self.config.database.as_str()), serde_json::json!({ "op": "abort" }));
        let abort_operation = dry_run.then_some(&abort);
        let params: Vec<&Value> = std::iter::once(&database).chain(operations).chain(abort_operation).collect();
        let mut results = results(self.call("transact", &params, self.config.call_timeout).await?)?;
        // The abort at the end was added for the dry run.
        let ours = results.get(operations.len()).and_then(ServerError::read);
        if dry_run && ours.is_some_and(|error| error.error == "aborted") {
            results.truncate(operations.len());
        }
        let refused =
            results.iter().enumerate().find_map(|(position, result)| Some((position, ServerError::read(result)?)));
        if let Some((position, error)) = refused {
            let operation = operations.get(position).map(|operation| {
                let words = ["op", "table"].iter().filter_map(|key| operation.get(key)?.as_str());
                words.collect::<Vec<_>>().join(" ")
            });
            let position = operation.is_some().then_some(position);
            return Err(CallError::Refused(Refusal { position, owner: None, operation, error }));
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

    /// Changes which rows of a table are monitored; returns when the server has accepted it.
    pub async fn set_conditions(&self, table: &str, conditions: Option<Vec<Condition>>) -> Result<(), CallError> {
        let position = self.config.tables.iter().position(|monitor| monitor.table == table);
        let Some(position) = position else {
            let error =
                ServerError { error: "unknown table".into(), details: Some(format!("{table} is not monitored")) };
            return Err(CallError::Refused(Refusal { position: None, owner: None, operation: None, error }));
        };
        let set = |conditions: &Option<Vec<Condition>>| {
            let mut wanted = self.state.conditions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::replace(&mut wanted[position], conditions.clone())
        };
        let before = set(&conditions);
        // The parameters are the conditions of all tables at the time of sending.
        let answer = self.call(CHANGE_CONDITIONS, &serde_json::json!([]), self.config.call_timeout).await;
        if matches!(answer, Err(CallError::Failed { .. })) {
            // A rejected condition must not be used by the next session.
            set(&before);
        }
        answer.map(|_| ())
    }

    /// Requests a lock; true if it is held now, else watch [`Status::locks`].
    ///
    /// After a reconnect it is requested again; meanwhile another client may hold it.
    pub async fn lock(&self, name: &str) -> Result<bool, CallError> {
        self.state.want_lock(name, true);
        let answer = self.call("lock", &[name], self.config.call_timeout).await?;
        Ok(answer.get("locked").and_then(Value::as_bool) == Some(true))
    }

    /// Takes a lock from its current holder.
    pub async fn steal(&self, name: &str) -> Result<(), CallError> {
        self.state.want_lock(name, true);
        self.call("steal", &[name], self.config.call_timeout).await.map(|_| ())
    }

    /// Releases a lock, or stops waiting for it.
    pub async fn unlock(&self, name: &str) -> Result<(), CallError> {
        self.state.want_lock(name, false);
        self.call("unlock", &[name], self.config.call_timeout).await?;
        self.state.status.send_modify(|status| status.locks.retain(|other| other != name));
        Ok(())
    }

    /// Names of the server's databases.
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
        let params: Box<RawValue> = to_raw_value(params)
            .map_err(|error| CallError::Lost { why: format!("cannot serialize the request: {error}") })?;
        if has_nul(params.get()) {
            return Err(CallError::Refused(nul_refusal()));
        }
        let (reply, answer) = oneshot::channel();
        let sent = Arc::new(AtomicBool::new(false));
        let call = Call { method, params, reply, sent: sent.clone() };
        let calling = async {
            self.calls.send(call).await.map_err(|_| CallError::Closed)?;
            answer.await.unwrap_or(Err(CallError::Closed))
        };
        match timeout(limit, calling).await {
            Ok(answer) => answer,
            Err(_) if sent.load(Ordering::SeqCst) => Err(CallError::Lost { why: format!("no reply within {limit:?}") }),
            Err(_) => Err(self.not_sent(limit)),
        }
    }
}

/// Whether a string in this JSON has the character NUL. ovsdb-server closes the session of a client that sends one.
fn has_nul(json: &str) -> bool {
    json.match_indices(r"\u0000").any(|(at, _)| {
        let backslashes = json.as_bytes()[..at].iter().rev().take_while(|sign| **sign == b'\\').count();
        backslashes.is_multiple_of(2)
    })
}

fn nul_refusal() -> Refusal {
    let details = "a string has the character NUL, which no database stores; nothing was sent";
    let error = ServerError { error: "invalid string".into(), details: Some(details.into()) };
    Refusal { position: None, owner: None, operation: None, error }
}

/// Names the operation of a transaction that was not sent because of a string in it.
fn unsendable(error: CallError, transaction: &Transaction) -> CallError {
    match error {
        CallError::Refused(refusal) => {
            let bad = |operation: &Operation| to_raw_value(operation).is_ok_and(|json| has_nul(json.get()));
            let position = transaction.operations().iter().position(bad);
            CallError::Refused(position.map_or(refusal, |position| transaction.refusal(position, nul_refusal().error)))
        }
        other => other,
    }
}

fn results(answer: Value) -> Result<Vec<Value>, CallError> {
    match answer {
        Value::Array(results) => Ok(results),
        other => Err(CallError::Lost { why: format!("expected a list of results, got {other}") }),
    }
}

/// Keeps a session open until all handles are dropped.
async fn drive(config: Arc<Config>, state: Arc<SharedState>, mut calls: mpsc::Receiver<Call>) {
    let mut resume = ResumeState::default();
    let mut queued = VecDeque::new();
    let mut retries = Retries::new(config.backoff);
    let mut list = RemoteList::new(&config);
    // A server that is known to lead.
    let mut leader: Option<Remote> = None;
    loop {
        let remotes = list.current();
        let mut order = remotes.clone();
        if leader.is_none() && config.leader_only && remotes.len() > 1 {
            leader = leader_search::find(&config, &remotes, resume.cluster.as_deref()).await;
        }
        if let Some(leader) = leader.take() {
            order.sort_by_key(|remote| *remote != leader);
        }
        // Try all servers before waiting.
        for remote in &order {
            let opened = tokio::select! {
                biased;
                opened = Session::open(&config, &state, &mut resume, remote) => opened,
                () = list.removed(remote) => Err(SessionEnd::Removed),
            };
            let end = match opened {
                Ok(mut session) => {
                    let begun = Instant::now();
                    state.status.send_modify(|status| {
                        status.connected = true;
                        status.sessions += 1;
                        status.remote = Some(remote.to_string());
                    });
                    tracing::debug!(%remote, database = config.database, "OVSDB session established");
                    let end = session.run(&mut calls, &mut queued, list.removed(remote)).await;
                    // A session that ends at once is not a success.
                    if begun.elapsed() >= config.backoff.longest {
                        retries.reset();
                    }
                    end
                }
                Err(end) => end,
            };
            let closed = matches!(end, SessionEnd::Closed);
            let next = if closed { "the client is closed" } else { "reconnecting" };
            tracing::debug!(%remote, database = config.database, error = %end, "OVSDB session ended; {next}");
            state.status.send_modify(|status| {
                status.connected = false;
                status.remote = None;
                status.last_error = Some(format!("{remote}: {end}"));
            });
            // A replica that may be wrong is compared with a full dump instead of being resumed.
            if matches!(end, SessionEnd::Malformed(_) | SessionEnd::MonitorDropped | SessionEnd::SchemaChanged) {
                resume.last_transaction = None;
            }
            if closed {
                return;
            }
            if let SessionEnd::Succeeded(successor) = end {
                leader = Some(successor);
                break;
            }
            if list.current() != remotes {
                break;
            }
        }
        if leader.is_some() || list.current() != remotes {
            // Servers that are listed now were not tried yet, and this round says nothing about all of them.
            resume.replacement.discard_round();
            retries.reset();
            continue;
        }
        let (successor, former) = (state.successor(), resume.cluster.clone());
        let replaced = resume.replacement.end_round(remotes.len(), former.as_deref(), &successor, Instant::now());
        if let Some(cluster) = replaced {
            let recorded = successor.cluster == cluster;
            tracing::warn!(
                database = config.database,
                former,
                cluster,
                recorded,
                "the servers belong to a new raft cluster; replacing the replica by its contents"
            );
            resume.start_over();
            retries.reset();
            state.status.send_modify(|status| status.replacements += 1);
            continue;
        }
        let delay = retries.next_delay();
        if !pause(delay, &mut list, &mut calls, &mut queued).await {
            return;
        }
    }
}

/// Waits, at most until the servers change, and collects calls meanwhile; false if all handles are dropped.
async fn pause(
    wait: Duration,
    list: &mut RemoteList,
    calls: &mut mpsc::Receiver<Call>,
    queued: &mut VecDeque<Call>,
) -> bool {
    let waiting = sleep(wait);
    tokio::pin!(waiting);
    // Drop calls whose caller has given up.
    queued.retain(|call| !call.reply.is_closed());
    loop {
        tokio::select! {
            () = &mut waiting => return true,
            () = list.changed() => return true,
            call = calls.recv() => match call {
                Some(call) => queued.push_back(call),
                None => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_is_found_and_what_looks_like_it_is_not() {
        let json = |text: &str| serde_json::to_string(&[text]).unwrap();
        for text in ["\0", "n2\0n3", "\\\0", "\\u0000\0"] {
            assert!(has_nul(&json(text)), "{text:?}");
        }
        for text in ["", r"\u0000", r"\\u0000", "\u{1}", "u0000"] {
            assert!(!has_nul(&json(text)), "{text:?}");
        }
    }
}
