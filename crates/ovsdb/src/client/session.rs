//! One connection's life: greeting, monitors, and then messages both ways until something ends it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use crate::client::config::Config;
use crate::client::end::{SessionEnd, malformed};
use crate::client::error::CallError;
use crate::client::plan::Plan;
use crate::client::remote::Remote;
use crate::client::replacement::Replacement;
use crate::client::server::{SERVER, ServerView};
use crate::client::store::SharedState;
use crate::client::wire::{Wire, WireError};
use crate::message::{self, Incoming};
use crate::operation::Condition;
use crate::read::Shared;
use crate::transaction::ServerError;
use crate::update::read_updates;

/// The name of our monitor on the database. Not the database's own name: `_Server` can be monitored like any other.
pub(crate) const REPLICA: &str = "replica";

/// The method that changes which rows are monitored.
pub(crate) const CHANGE_CONDITIONS: &str = "monitor_cond_change";

/// The conditions of each monitored table.
pub(super) type Conditions = Vec<Option<Vec<Condition>>>;

/// A request of a user.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    /// The parameters, as text.
    pub(crate) params: Box<RawValue>,
    pub(crate) reply: oneshot::Sender<Result<Value, CallError>>,
    /// Set when it leaves, so that one who gives up knows whether it may have happened.
    pub(crate) sent: Arc<std::sync::atomic::AtomicBool>,
}

/// What the driver remembers from session to session.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The last transaction that the replica has, if the server told.
    pub(crate) last_transaction: Option<String>,
    /// The highest raft index that was seen.
    pub(crate) index: Option<i64>,
    /// The cluster that the database belongs to.
    pub(crate) cluster: Option<String>,
    /// Whether another cluster has taken its place.
    pub(crate) replacement: Replacement,
    /// The conditions that the replica was kept under; none while it is open whether the server has taken new ones.
    pub(super) conditions: Option<Conditions>,
}

impl Memory {
    /// Begins anew with the database of another cluster: nothing of the former one counts.
    pub(crate) fn start_over(&mut self) {
        (self.last_transaction, self.index, self.cluster) = (None, None, None);
    }
}

/// An answer, as the text it came in: a dump is large, and is not copied.
pub(super) struct Answer(String);

impl Answer {
    pub(super) fn result(&self) -> Result<&RawValue, SessionEnd> {
        let incoming = Incoming::parse(&self.0).map_err(malformed)?;
        incoming.result.ok_or_else(|| malformed("an answer without a result"))
    }
}

/// What is waited for under a request's number.
enum Waiting {
    User(Call),
    Probe,
    Audit,
    Greeting,
}

pub(crate) struct Session<'a> {
    pub(super) config: &'a Config,
    pub(super) state: &'a SharedState,
    pub(super) memory: &'a mut Memory,
    wire: Wire,
    waiting: HashMap<u64, Waiting>,
    next_id: u64,
    /// When the server was asked for a sign of life that has not come yet.
    probed: Option<Instant>,
    pub(super) server: Option<ServerView>,
    pub(super) plan: Option<Plan>,
    shared: Shared,
    /// Notifications that came while an answer was awaited, in their order.
    pub(super) early: VecDeque<String>,
    conditions_in_flight: u32,
}

impl<'a> Session<'a> {
    /// Connects and greets; returns a session whose replica follows the server.
    pub(crate) async fn open(
        config: &'a Config,
        state: &'a SharedState,
        memory: &'a mut Memory,
        remote: &Remote,
    ) -> Result<Session<'a>, SessionEnd> {
        let wire = Wire::connect(remote, config.tls.as_ref(), config.limits, config.connect_timeout).await?;
        let mut session = Session {
            config,
            state,
            memory,
            wire,
            waiting: HashMap::new(),
            next_id: 1,
            probed: None,
            server: None,
            plan: None,
            shared: Shared::new(),
            early: VecDeque::new(),
            conditions_in_flight: 0,
        };
        let schema = session.greet().await?;
        session.monitor(schema).await?;
        session.ask_for_locks().await?;
        Ok(session)
    }

    pub(super) fn wanted_conditions(&self) -> Conditions {
        self.state.conditions.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Applies updates of our database to the replica.
    pub(super) fn take(&mut self, updates: &RawValue, whole: bool) -> Result<(), SessionEnd> {
        let tables = self.plan.as_ref().map_or(&[][..], |plan| &plan.tables);
        let updates = read_updates(updates.get(), tables, &mut self.shared).map_err(malformed)?;
        self.state.apply(updates, whole).map_err(malformed)?;
        Ok(())
    }

    /// Remembers how far this server was, so that no other one takes us back.
    pub(super) fn remember(&mut self) {
        let standing = self.server.as_ref().and_then(|server| server.standing(&self.config.database));
        if let Some(standing) = standing.filter(|standing| standing.clustered) {
            self.memory.index = self.memory.index.max(standing.index);
            self.memory.cluster = standing.cluster.or(self.memory.cluster.take());
        }
    }

    /// Asks and waits for the answer; what else comes meanwhile is kept. The inner error is the server's.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Result<Answer, ServerError>, SessionEnd> {
        let id = self.send_request(method, &params, Waiting::Greeting).await?;
        let deadline = Instant::now() + limit;
        loop {
            let text = self.receive(deadline).await?;
            let incoming = Incoming::parse(&text).map_err(malformed)?;
            if incoming.answers() != Some(id) {
                if !self.answer_echo(&incoming).await? {
                    self.early.push_back(text);
                }
                continue;
            }
            self.waiting.remove(&id);
            return Ok(match (incoming.error, incoming.result) {
                (Some(error), _) => Err(read_error(error)),
                (None, Some(_)) => Ok(Answer(text)),
                (None, None) => return Err(malformed(format!("an answer to {method} without a result"))),
            });
        }
    }

    pub(super) async fn receive(&mut self, deadline: Instant) -> Result<String, SessionEnd> {
        let patience = deadline.saturating_duration_since(Instant::now());
        loop {
            // As long as bytes come, a large answer may take its time.
            let until = deadline.max(self.wire.heard() + patience);
            match tokio::time::timeout_at(until.into(), self.wire.receive()).await {
                Ok(text) => return Ok(text?),
                Err(_) if Instant::now() < self.wire.heard() + patience => {}
                Err(_) => return Err(WireError::Timeout(patience).into()),
            }
        }
    }

    async fn send_request(
        &mut self,
        method: &str,
        params: &(impl serde::Serialize + ?Sized),
        waiting: Waiting,
    ) -> Result<u64, SessionEnd> {
        let id = self.new_id();
        let bytes = message::request(id, method, params).map_err(malformed)?;
        self.waiting.insert(id, waiting);
        self.wire.send(&bytes, self.config.probe_interval).await?;
        Ok(id)
    }

    fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    async fn answer_echo(&mut self, incoming: &Incoming<'_>) -> Result<bool, SessionEnd> {
        match (incoming.method.as_deref(), incoming.id) {
            (Some("echo"), Some(id)) => {
                let reply = message::echo_reply(id, incoming.params);
                self.wire.send(&reply, self.config.probe_interval).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    pub(super) fn drain_early(&mut self) -> Result<(), SessionEnd> {
        while let Some(text) = self.early.pop_front() {
            let incoming = Incoming::parse(&text).map_err(malformed)?;
            self.take_notification(&incoming)?;
        }
        Ok(())
    }

    /// A notification; what is not known is ignored, as the standard wants it.
    fn take_notification(&mut self, incoming: &Incoming<'_>) -> Result<(), SessionEnd> {
        let Some(method) = incoming.method.as_deref() else { return Ok(()) };
        let params = incoming.params.map_or("[]", RawValue::get);
        let (monitor, transaction, updates): (String, Option<String>, &RawValue) = match method {
            "update" | "update2" => {
                let (monitor, updates) = serde_json::from_str(params).map_err(malformed)?;
                (monitor, None, updates)
            }
            "update3" => serde_json::from_str(params).map_err(malformed)?,
            "monitor_canceled" => return Err(SessionEnd::SchemaChanged),
            "locked" | "stolen" => {
                let (lock,): (String,) = serde_json::from_str(params).map_err(malformed)?;
                self.note_lock(&lock, method == "locked");
                return Ok(());
            }
            _ => return Ok(()),
        };
        if monitor == SERVER {
            return self.take_server_update(updates);
        }
        if monitor == REPLICA && self.plan.is_some() {
            self.take(updates, false)?;
            if transaction.is_some() {
                self.memory.last_transaction = transaction;
            }
        }
        Ok(())
    }

    pub(super) fn note_lock(&self, lock: &str, held: bool) {
        self.state.status.send_modify(|status| {
            status.locks.retain(|other| other != lock);
            if held {
                status.locks.push(lock.to_owned());
            }
        });
    }

    fn take_server_update(&mut self, updates: &RawValue) -> Result<(), SessionEnd> {
        let Some(server) = self.server.as_mut() else { return Ok(()) };
        let before = server.standing(&self.config.database).and_then(|standing| standing.schema);
        server.apply(updates.get()).map_err(malformed)?;
        if self.plan.is_none() {
            return Ok(());
        }
        let standing = self.judge()?;
        if standing.schema != before {
            return Err(SessionEnd::SchemaChanged);
        }
        self.remember();
        Ok(())
    }

    /// Serves users and server until something ends it.
    pub(crate) async fn serve(&mut self, calls: &mut mpsc::Receiver<Call>, queued: &mut VecDeque<Call>) -> SessionEnd {
        let mut audit = Instant::now() + self.config.audit_interval;
        let end = loop {
            // However much the server sends, users get their turn.
            while let Ok(call) = calls.try_recv() {
                queued.push_back(call);
            }
            if let Err(end) = self.send_queued(queued).await {
                break end;
            }
            let now = Instant::now();
            let half = self.config.probe_interval / 2;
            let heard = self.wire.heard();
            self.probed = self.probed.filter(|asked| heard <= *asked);
            // Timed from the question: if we stood still ourselves, the answer has to be read first.
            let silent = self.probed.unwrap_or(heard) + half;
            if now >= silent {
                if self.probed.is_some() {
                    break SessionEnd::Silent(self.config.probe_interval);
                }
                self.probed = Some(now);
                if let Err(end) = self.send_request("echo", &json!([]), Waiting::Probe).await {
                    break end;
                }
                continue;
            }
            if now >= audit {
                audit = now + self.config.audit_interval;
                if let Err(end) = self.audit().await {
                    break end;
                }
            }
            tokio::select! {
                biased;
                received = self.wire.receive() => match received {
                    Ok(text) => {
                        if let Err(end) = self.dispatch(&text).await {
                            break end;
                        }
                    }
                    Err(error) => break error.into(),
                },
                call = calls.recv() => match call {
                    Some(call) => queued.push_back(call),
                    None => break SessionEnd::Closed,
                },
                () = sleep_until(silent.min(audit).into()) => {}
            }
        };
        for (_, waiting) in self.waiting.drain() {
            if let Waiting::User(call) = waiting {
                let _ = call.reply.send(Err(CallError::Lost { why: end.to_string() }));
            }
        }
        self.state.status.send_modify(|status| status.locks.clear());
        end
    }

    async fn send_queued(&mut self, queued: &mut VecDeque<Call>) -> Result<(), SessionEnd> {
        while let Some(mut call) = queued.pop_front() {
            // First said, then looked: one who gives up at this moment errs on the safe side.
            call.sent.store(true, Ordering::SeqCst);
            if call.reply.is_closed() {
                continue;
            }
            if call.method == CHANGE_CONDITIONS {
                self.conditions_in_flight += 1;
                self.memory.conditions = None;
                call.params = self.condition_parameters()?;
            }
            let id = self.new_id();
            let bytes = message::request(id, call.method, &call.params).map_err(malformed)?;
            self.waiting.insert(id, Waiting::User(call));
            self.wire.send(&bytes, self.config.probe_interval).await?;
        }
        Ok(())
    }

    /// The conditions of all tables as they are wanted now, whoever asked first.
    fn condition_parameters(&self) -> Result<Box<RawValue>, SessionEnd> {
        let wanted = self.wanted_conditions();
        let tables: serde_json::Map<String, Value> = self
            .config
            .tables
            .iter()
            .zip(wanted)
            .filter(|(table, _)| self.plan.as_ref().is_some_and(|plan| plan.is_present(&table.table)))
            .map(|(table, conditions)| {
                // All rows: the condition that always holds.
                let rows = conditions.map_or_else(|| json!([true]), |conditions| json!(conditions));
                (table.table.clone(), json!([{ "where": rows }]))
            })
            .collect();
        serde_json::value::to_raw_value(&json!([REPLICA, REPLICA, tables])).map_err(malformed)
    }

    /// A change of no condition: a server that has lost our monitor answers with an error.
    async fn audit(&mut self) -> Result<(), SessionEnd> {
        if self.memory.last_transaction.is_none() {
            // A server without conditional monitors cannot be asked.
            return Ok(());
        }
        self.send_request(CHANGE_CONDITIONS, &json!([REPLICA, REPLICA, {}]), Waiting::Audit).await?;
        Ok(())
    }

    async fn dispatch(&mut self, text: &str) -> Result<(), SessionEnd> {
        let incoming = Incoming::parse(text).map_err(malformed)?;
        if self.answer_echo(&incoming).await? {
            return Ok(());
        }
        let Some(id) = incoming.answers() else { return self.take_notification(&incoming) };
        match self.waiting.remove(&id) {
            Some(Waiting::User(call)) => {
                let answer = match (incoming.error, incoming.result) {
                    (Some(error), _) => Err(CallError::Failed { method: call.method.into(), error: read_error(error) }),
                    (None, result) => serde_json::from_str(result.map_or("null", RawValue::get))
                        .map_err(|error| CallError::Lost { why: format!("it cannot be understood: {error}") }),
                };
                if call.method == CHANGE_CONDITIONS {
                    self.conditions_in_flight -= 1;
                    if answer.is_ok() && self.conditions_in_flight == 0 {
                        self.memory.conditions = Some(self.wanted_conditions());
                    }
                }
                if call.method == "lock" || call.method == "steal" {
                    self.note_lock_answer(&call, &answer);
                }
                // Who does not wait any more does not need it.
                let _ = call.reply.send(answer);
                Ok(())
            }
            Some(Waiting::Audit) if incoming.error.is_some() => Err(SessionEnd::MonitorDropped),
            _ => Ok(()),
        }
    }

    fn note_lock_answer(&self, call: &Call, answer: &Result<Value, CallError>) {
        let lock = serde_json::from_str::<(String,)>(call.params.get()).map(|(lock,)| lock);
        if let (Ok(lock), Ok(answer)) = (lock, answer) {
            self.note_lock(&lock, answer.get("locked").and_then(Value::as_bool) == Some(true));
        }
    }
}

fn read_error(error: &RawValue) -> ServerError {
    let value: Value = serde_json::from_str(error.get()).unwrap_or(Value::Null);
    ServerError::read(&value).unwrap_or_else(|| ServerError {
        error: value.as_str().map_or_else(|| value.to_string(), String::from),
        details: None,
    })
}
