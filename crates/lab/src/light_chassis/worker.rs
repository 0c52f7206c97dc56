//! The task behind all light chassis: one OVSDB session, one transaction at a time, batching what comes meanwhile.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use ovsdb::client::{CallError, Client, Config, Remote, Subscription};
use ovsdb::transaction::Transaction;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::ChassisSpec;
use super::chassis_set::ChassisSet;
use super::rows::monitors;
use super::status::SharedStatus;
use crate::error::{Error, Result};

/// How long one transaction may take; thousands of ports on a busy host take seconds.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// After a rejected transaction. By then the replica shows why, and the next transaction differs.
const RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) enum Command {
    Add(Vec<ChassisSpec>),
    Pause(String),
    Resume(String),
    Remove(String),
    Stop,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) reply: SyncSender<Result<()>>,
}

struct Worker<'a> {
    client: Client,
    changes: Subscription,
    chassis_set: ChassisSet,
    shared: &'a SharedStatus,
}

/// Reports the end of the thread, also by a panic.
struct EndGuard<'a>(&'a SharedStatus);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.change(|status| status.ended = true);
    }
}

/// Runs until it gets [`Command::Stop`], or all senders are gone.
pub(super) async fn run(
    remotes: Vec<Remote>,
    chassis_set: ChassisSet,
    shared: &SharedStatus,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    let _end = EndGuard(shared);
    let mut config = Config::new(remotes, ovn_schema::southbound::DATABASE.name);
    config.tables = monitors();
    config.call_timeout = CALL_LIMIT;
    let client = Client::start(config);
    let changes = client.subscribe();
    let mut worker = Worker { client, changes, chassis_set, shared };
    loop {
        worker.take_changes();
        let next = worker.chassis_set.next(&worker.client.snapshot());
        worker.publish();
        // Requests are handled between transactions: a paused chassis has none in flight.
        let request = if next.is_empty() {
            let mut status = worker.client.status();
            tokio::select! {
                request = requests.recv() => request,
                changes = worker.changes.next() => {
                    worker.chassis_set.note_changes(&changes);
                    continue;
                }
                // An unreachable server only shows in the status.
                _ = status.changed() => continue,
            }
        } else {
            worker.send(&next).await;
            match requests.try_recv() {
                Ok(request) => Some(request),
                Err(TryRecvError::Empty) => continue,
                Err(TryRecvError::Disconnected) => None,
            }
        };
        let Some(request) = request else { return };
        if !worker.handle(request).await {
            return;
        }
    }
}

impl Worker<'_> {
    fn take_changes(&mut self) {
        if let Some(changes) = self.changes.take() {
            self.chassis_set.note_changes(&changes);
        }
    }

    fn publish(&self) {
        let last_error = {
            let status = self.client.status();
            let status = status.borrow();
            if status.connected { None } else { status.last_error.clone() }
        };
        self.shared.change(|status| {
            status.wanted = self.chassis_set.len();
            status.missing = self.chassis_set.missing();
            status.claimed = self.chassis_set.claimed();
            if last_error.is_some() {
                status.last_error = last_error;
            }
        });
    }

    async fn send(&mut self, transaction: &Transaction) {
        let Err(error) = self.transact(transaction).await else {
            self.shared.change(|status| status.refusals = 0);
            return;
        };
        tracing::debug!(%error, "cannot write the rows of light chassis; checking and sending all of them again");
        // Everything is idempotent: check all of it again and send what is still missing.
        self.chassis_set.retry_all();
        self.shared.change(|status| {
            status.refusals = if matches!(error, CallError::Refused(_)) { status.refusals + 1 } else { 0 };
            status.last_error = Some(error.to_string());
        });
        tokio::time::sleep(RETRY_DELAY).await;
    }

    async fn transact(&self, transaction: &Transaction) -> Result<(), CallError> {
        self.shared.change(|status| status.transactions += 1);
        self.client.transact(transaction).await.map(|_| ())
    }

    /// Handles a request; false after [`Command::Stop`].
    async fn handle(&mut self, request: Request) -> bool {
        let Request { command, reply } = request;
        let go_on = !matches!(command, Command::Stop);
        let done = match command {
            Command::Add(chassis) => self.chassis_set.add(&chassis),
            Command::Pause(name) => self.chassis_set.set_paused(&name, true),
            Command::Resume(name) => self.chassis_set.set_paused(&name, false),
            Command::Remove(name) => match self.chassis_set.remove(&name) {
                Ok(()) => self.delete(&[name]).await,
                Err(error) => Err(error),
            },
            Command::Stop => {
                let names = self.chassis_set.remove_all();
                self.delete(&names).await
            }
        };
        // Callers must see the effect of their request.
        self.publish();
        // The caller may be gone.
        let _ = reply.send(done);
        go_on
    }

    /// Deletes rows until they are gone: after a lost reply the replica shows the result.
    async fn delete(&mut self, names: &[String]) -> Result<()> {
        let mut last_error = None;
        for _ in 0..3 {
            let gone = ChassisSet::deletion(&self.client.snapshot(), names);
            if gone.is_empty() {
                return Ok(());
            }
            match self.transact(&gone).await {
                Ok(()) => return Ok(()),
                Err(error) => last_error = Some(error),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        let why = last_error.map_or_else(String::new, |last_error| last_error.to_string());
        Err(Error::Invalid(format!("cannot delete {} light chassis: {why}", names.len())))
    }
}
