//! One session: handshake, monitors, then messages in both directions until an error or the end of the client.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
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
use crate::client::silence::{Action, Silence};
use crate::client::store::SharedState;
use crate::client::succession;
use crate::client::wire::{Wire, WireError};
use crate::message::{self, Incoming};
use crate::operation::Condition;
use crate::read::Shared;
use crate::transaction::ServerError;
use crate::update::read_updates;

/// Name of our monitor on the database. Not the database's name: `_Server` can be monitored as well.
pub(crate) const REPLICA: &str = "replica";

/// Method that changes which rows are monitored.
pub(crate) const CHANGE_CONDITIONS: &str = "monitor_cond_change";

/// Conditions of each monitored table.
pub(super) type Conditions = Vec<Option<Vec<Condition>>>;

/// A call of a client handle.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    /// Serialized parameters.
    pub(crate) params: Box<RawValue>,
    pub(crate) reply: oneshot::Sender<Result<Value, CallError>>,
    /// Set before sending, so that a caller that times out knows whether the call is in doubt.
    pub(crate) sent: Arc<std::sync::atomic::AtomicBool>,
}

/// State that the driver keeps across reconnects.
#[derive(Debug, Default)]
pub(crate) struct ResumeState {
    /// ID of the last transaction in the replica, if the server supports `monitor_cond_since`.
    pub(crate) last_transaction: Option<String>,
    /// Highest raft index seen.
    pub(crate) index: Option<i64>,
    /// ID of the raft cluster of the database.
    pub(crate) cluster: Option<String>,
    /// Detects a replaced cluster.
    pub(crate) replacement: Replacement,
    /// Conditions of the replica; none while a change of them is in flight.
    pub(super) conditions: Option<Conditions>,
}

impl ResumeState {
    /// Forgets the former cluster.
    pub(crate) fn start_over(&mut self) {
        (self.last_transaction, self.index, self.cluster) = (None, None, None);
    }
}

/// Text of a reply, unparsed: a dump is large, and is not copied.
pub(super) struct Reply(String);

impl Reply {
    pub(super) fn result(&self) -> Result<&RawValue, SessionEnd> {
        let incoming = Incoming::parse(&self.0).map_err(malformed)?;
        incoming.result.ok_or_else(|| malformed("a reply without a result"))
    }
}

/// Most bytes of notifications before the handshake is complete: changes of other clients while a large dump arrives.
const MOST_EARLY_BYTES: usize = 128 << 20;

/// Purpose of a request in flight.
enum InFlight {
    User(Call),
    Probe,
    Audit,
    Handshake,
}

pub(crate) struct Session<'a> {
    pub(super) config: &'a Config,
    pub(super) state: &'a SharedState,
    pub(super) resume: &'a mut ResumeState,
    wire: Wire,
    waiting: HashMap<u64, InFlight>,
    next_id: u64,
    remote: Remote,
    pub(super) server: Option<ServerView>,
    pub(super) plan: Option<Plan>,
    shared: Shared,
    /// Notifications that arrived during the handshake, in order.
    pub(super) early: VecDeque<String>,
    /// Approximate memory of the queue.
    early_bytes: usize,
    conditions_in_flight: u32,
}

impl<'a> Session<'a> {
    /// Connects and completes the handshake; the replica is up to date on return.
    pub(crate) async fn open(
        config: &'a Config,
        state: &'a SharedState,
        resume: &'a mut ResumeState,
        remote: &Remote,
    ) -> Result<Session<'a>, SessionEnd> {
        let wire = Wire::connect(remote, config.tls.as_ref(), config.limits, config.connect_timeout).await?;
        let mut session = Session {
            config,
            state,
            resume,
            wire,
            waiting: HashMap::new(),
            next_id: 1,
            remote: remote.clone(),
            server: None,
            plan: None,
            shared: Shared::new(),
            early: VecDeque::new(),
            early_bytes: 0,
            conditions_in_flight: 0,
        };
        let schema = session.handshake().await?;
        session.monitor(schema).await?;
        session.request_locks().await?;
        Ok(session)
    }

    pub(super) fn wanted_conditions(&self) -> Conditions {
        self.state.conditions.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Applies updates of the database to the replica.
    pub(super) fn take(&mut self, updates: &RawValue, whole: bool) -> Result<(), SessionEnd> {
        let tables = self.plan.as_ref().map_or(&[][..], |plan| &plan.tables);
        let updates = read_updates(updates.get(), tables, &mut self.shared).map_err(malformed)?;
        self.state.apply(updates, whole).map_err(malformed)?;
        Ok(())
    }

    fn is_clustered(&self) -> bool {
        let database = self.server.as_ref().and_then(|server| server.database_state(&self.config.database));
        database.is_some_and(|database| database.clustered)
    }

    /// Stores the server's raft index, so that a server that lags is not accepted later.
    pub(super) fn store_progress(&mut self) {
        let database = self.server.as_ref().and_then(|server| server.database_state(&self.config.database));
        if let Some(database) = database.filter(|database| database.clustered) {
            self.resume.index = self.resume.index.max(database.index);
            self.resume.cluster = database.cluster.or(self.resume.cluster.take());
        }
    }

    /// Sends a request and waits for its reply; notifications meanwhile are queued. The inner error is the server's.
    pub(super) async fn request(
        &mut self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Result<Reply, ServerError>, SessionEnd> {
        let id = self.send_request(method, &params, InFlight::Handshake).await?;
        let deadline = Instant::now() + limit;
        loop {
            let text = self.receive(deadline).await?;
            let incoming = Incoming::parse(&text).map_err(malformed)?;
            if incoming.answers() != Some(id) {
                if !self.answer_echo(&incoming).await? {
                    self.queue_early(text)?;
                }
                continue;
            }
            self.waiting.remove(&id);
            return Ok(match (incoming.error, incoming.result) {
                (Some(error), _) => Err(read_error(error)),
                (None, Some(_)) => Ok(Reply(text)),
                (None, None) => return Err(malformed(format!("a reply to {method} without a result"))),
            });
        }
    }

    /// Queues a notification that arrived during the handshake. A server that sends nothing else is given up before it
    /// fills the memory.
    pub(super) fn queue_early(&mut self, text: String) -> Result<(), SessionEnd> {
        // Small messages take more memory than their text.
        self.early_bytes += text.len() + 64;
        if self.early_bytes > MOST_EARLY_BYTES {
            return Err(malformed(format!("more than {MOST_EARLY_BYTES} bytes of notifications during the handshake")));
        }
        self.early.push_back(text);
        Ok(())
    }

    pub(super) async fn receive(&mut self, deadline: Instant) -> Result<String, SessionEnd> {
        let limit = deadline.saturating_duration_since(Instant::now());
        loop {
            // While bytes arrive, a large reply may take longer.
            let until = deadline.max(self.wire.last_received() + limit);
            match tokio::time::timeout_at(until.into(), self.wire.receive()).await {
                Ok(text) => return Ok(text?),
                Err(_) if Instant::now() < self.wire.last_received() + limit => {}
                Err(_) => return Err(WireError::Timeout(limit).into()),
            }
        }
    }

    async fn send_request(
        &mut self,
        method: &str,
        params: &(impl serde::Serialize + ?Sized),
        waiting: InFlight,
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
        self.early_bytes = 0;
        while let Some(text) = self.early.pop_front() {
            let incoming = Incoming::parse(&text).map_err(malformed)?;
            self.take_notification(&incoming)?;
        }
        Ok(())
    }

    /// Handles a notification; RFC 7047 requires to ignore unknown ones.
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
                self.resume.last_transaction = transaction;
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
        let before = server.database_state(&self.config.database).and_then(|database| database.schema);
        server.apply(updates.get()).map_err(malformed)?;
        if self.plan.is_none() {
            return Ok(());
        }
        let database = self.check_server()?;
        if database.schema != before {
            return Err(SessionEnd::SchemaChanged);
        }
        self.store_progress();
        Ok(())
    }

    /// Handles calls and messages until the session ends, or `removed` is ready: its server is not one of the database's any
    /// more.
    pub(crate) async fn run(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
        queued: &mut VecDeque<Call>,
        removed: impl Future<Output = ()>,
    ) -> SessionEnd {
        let mut removed = std::pin::pin!(removed);
        let mut audit = Instant::now() + self.config.audit_interval;
        let mut silence = Silence::new(self.config.probe_interval);
        let mut successor: Pin<Box<dyn Future<Output = Remote> + Send>> =
            if self.config.leader_only && self.is_clustered() {
                let (remote, cluster) = (self.remote.clone(), self.resume.cluster.clone());
                Box::pin(succession::successor(self.config.clone(), remote, cluster))
            } else {
                Box::pin(std::future::pending())
            };
        let end = loop {
            // Fair select: calls are sent even if the server sends constantly.
            while let Ok(call) = calls.try_recv() {
                queued.push_back(call);
            }
            // Before calls are sent: a server that is not listed any more gets none.
            if std::future::poll_fn(|context| Poll::Ready(removed.as_mut().poll(context).is_ready())).await {
                break SessionEnd::Removed;
            }
            if let Err(end) = self.send_queued(queued).await {
                break end;
            }
            let now = Instant::now();
            let wake = match silence.next(now, self.wire.last_received()) {
                Action::Wait(until) => until,
                Action::SendEcho => {
                    if let Err(end) = self.send_request("echo", &json!([]), InFlight::Probe).await {
                        break end;
                    }
                    continue;
                }
                Action::GiveUp => break SessionEnd::Silent(self.config.probe_interval),
            };
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
                () = &mut removed => break SessionEnd::Removed,
                leader = &mut successor => break SessionEnd::Succeeded(leader),
                () = sleep_until(wake.min(audit).into()) => {}
            }
        };
        for (_, waiting) in self.waiting.drain() {
            if let InFlight::User(call) = waiting {
                let _ = call.reply.send(Err(CallError::Lost { why: end.to_string() }));
            }
        }
        self.state.status.send_modify(|status| status.locks.clear());
        end
    }

    async fn send_queued(&mut self, queued: &mut VecDeque<Call>) -> Result<(), SessionEnd> {
        while let Some(mut call) = queued.pop_front() {
            // Set before checking for a closed caller: one that times out in between reports in doubt.
            call.sent.store(true, Ordering::SeqCst);
            if call.reply.is_closed() {
                continue;
            }
            if call.method == CHANGE_CONDITIONS {
                self.conditions_in_flight += 1;
                self.resume.conditions = None;
                call.params = self.condition_parameters()?;
            }
            let id = self.new_id();
            let bytes = message::request(id, call.method, &call.params).map_err(malformed)?;
            self.waiting.insert(id, InFlight::User(call));
            self.wire.send(&bytes, self.config.probe_interval).await?;
        }
        Ok(())
    }

    /// The conditions of all tables as requested now.
    fn condition_parameters(&self) -> Result<Box<RawValue>, SessionEnd> {
        let wanted = self.wanted_conditions();
        let tables: serde_json::Map<String, Value> = self
            .config
            .tables
            .iter()
            .zip(wanted)
            .filter(|(table, _)| self.plan.as_ref().is_some_and(|plan| plan.is_present(&table.table)))
            .map(|(table, conditions)| {
                // `true` matches all rows.
                let rows = conditions.map_or_else(|| json!([true]), |conditions| json!(conditions));
                (table.table.clone(), json!([{ "where": rows }]))
            })
            .collect();
        serde_json::value::to_raw_value(&json!([REPLICA, REPLICA, tables])).map_err(malformed)
    }

    /// Sends an empty condition change: a server that has lost our monitor replies with an error.
    async fn audit(&mut self) -> Result<(), SessionEnd> {
        if self.resume.last_transaction.is_none() {
            // Not possible without conditional monitors.
            return Ok(());
        }
        self.send_request(CHANGE_CONDITIONS, &json!([REPLICA, REPLICA, {}]), InFlight::Audit).await?;
        Ok(())
    }

    async fn dispatch(&mut self, text: &str) -> Result<(), SessionEnd> {
        let incoming = Incoming::parse(text).map_err(malformed)?;
        if self.answer_echo(&incoming).await? {
            return Ok(());
        }
        let Some(id) = incoming.answers() else { return self.take_notification(&incoming) };
        match self.waiting.remove(&id) {
            Some(InFlight::User(call)) => {
                let answer = match (incoming.error, incoming.result) {
                    (Some(error), _) => Err(CallError::Failed { method: call.method.into(), error: read_error(error) }),
                    (None, result) => serde_json::from_str(result.map_or("null", RawValue::get))
                        .map_err(|error| CallError::Lost { why: format!("malformed reply: {error}") }),
                };
                if call.method == CHANGE_CONDITIONS {
                    self.conditions_in_flight -= 1;
                    if answer.is_ok() && self.conditions_in_flight == 0 {
                        self.resume.conditions = Some(self.wanted_conditions());
                    }
                }
                if call.method == "lock" || call.method == "steal" {
                    self.note_lock_answer(&call, &answer);
                }
                // The caller may have given up.
                let _ = call.reply.send(answer);
                Ok(())
            }
            Some(InFlight::Audit) if incoming.error.is_some() => Err(SessionEnd::MonitorDropped),
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
