//! The one task behind all light chassis: one session, one transaction at a time, then the next batch.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use ovsdb::client::{CallError, Client, Config, Remote, Subscription};
use ovsdb::transaction::Transaction;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::ChassisSpec;
use super::fleet::Fleet;
use super::rows::monitors;
use super::view::Shared;
use crate::error::{Error, Result};

/// How long one transaction may take; thousands of ports on a busy machine take seconds.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// After a refusal. The replica shows why in a moment, and what is then sent is another transaction.
const SECOND_TRY: Duration = Duration::from_millis(100);

/// What those who hold the light chassis may want.
#[derive(Debug)]
pub(super) enum Wish {
    Add(Vec<ChassisSpec>),
    Pause(String),
    Resume(String),
    Remove(String),
    Stop,
}

/// A wish, and where it is told that it is fulfilled.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) wish: Wish,
    pub(super) reply: SyncSender<Result<()>>,
}

struct Worker<'a> {
    client: Client,
    changes: Subscription,
    fleet: Fleet,
    shared: &'a Shared,
}

/// However the thread ends, whoever waits is told.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.change(|view| view.ended = true);
    }
}

/// Runs until it is told to stop, or nobody can tell it any more.
pub(super) async fn run(
    remotes: Vec<Remote>,
    fleet: Fleet,
    shared: &Shared,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let _end = End(shared);
    let mut config = Config::new(remotes, ovn_schema::southbound::DATABASE.name);
    config.tables = monitors();
    config.call_timeout = CALL_LIMIT;
    let client = Client::start(config);
    let changes = client.subscribe();
    let mut worker = Worker { client, changes, fleet, shared };
    loop {
        worker.look();
        let next = worker.fleet.next(&worker.client.snapshot());
        worker.publish();
        // Orders come between transactions: what is paused has nothing under way.
        let order = if next.is_empty() {
            let mut status = worker.client.status();
            tokio::select! {
                order = orders.recv() => order,
                changes = worker.changes.next() => {
                    worker.fleet.absorb(&changes);
                    continue;
                }
                // Of a server that cannot be reached only the status tells.
                _ = status.changed() => continue,
            }
        } else {
            worker.send(&next).await;
            match orders.try_recv() {
                Ok(order) => Some(order),
                Err(TryRecvError::Empty) => continue,
                Err(TryRecvError::Disconnected) => None,
            }
        };
        let Some(order) = order else { return };
        if !worker.obey(order).await {
            return;
        }
    }
}

impl Worker<'_> {
    fn look(&mut self) {
        if let Some(changes) = self.changes.take() {
            self.fleet.absorb(&changes);
        }
    }

    fn publish(&self) {
        let problem = {
            let status = self.client.status();
            let status = status.borrow();
            if status.connected { None } else { status.last_error.clone() }
        };
        self.shared.change(|view| {
            view.wanted = self.fleet.len();
            view.missing = self.fleet.missing();
            view.claimed = self.fleet.claimed();
            if problem.is_some() {
                view.problem = problem;
            }
        });
    }

    async fn send(&mut self, transaction: &Transaction) {
        let Err(error) = self.transact(transaction).await else {
            self.shared.change(|view| view.refusals = 0);
            return;
        };
        tracing::debug!(%error, "light chassis");
        // Everything is idempotent: look at all of it again and send what is still missing.
        self.fleet.doubt();
        self.shared.change(|view| {
            view.refusals = if matches!(error, CallError::Refused(_)) { view.refusals + 1 } else { 0 };
            view.problem = Some(error.to_string());
        });
        tokio::time::sleep(SECOND_TRY).await;
    }

    async fn transact(&self, transaction: &Transaction) -> Result<(), CallError> {
        self.shared.change(|view| view.transactions += 1);
        self.client.transact(transaction).await.map(|_| ())
    }

    /// Fulfils a wish; false if it was to stop.
    async fn obey(&mut self, order: Order) -> bool {
        let Order { wish, reply } = order;
        let go_on = !matches!(wish, Wish::Stop);
        let done = match wish {
            Wish::Add(chassis) => self.fleet.add(&chassis),
            Wish::Pause(name) => self.fleet.set_paused(&name, true),
            Wish::Resume(name) => self.fleet.set_paused(&name, false),
            Wish::Remove(name) => match self.fleet.forget(&name) {
                Ok(()) => self.delete(&[name]).await,
                Err(error) => Err(error),
            },
            Wish::Stop => {
                let names = self.fleet.forget_all();
                self.delete(&names).await
            }
        };
        // What is asked right after an order must know of it.
        self.publish();
        // Nobody may wait any more.
        let _ = reply.send(done);
        go_on
    }

    /// Deletes rows until they are gone: a lost answer says nothing, the replica does.
    async fn delete(&mut self, names: &[String]) -> Result<()> {
        let mut problem = None;
        for _ in 0..3 {
            let gone = Fleet::deletion(&self.client.snapshot(), names);
            if gone.is_empty() {
                return Ok(());
            }
            match self.transact(&gone).await {
                Ok(()) => return Ok(()),
                Err(error) => problem = Some(error),
            }
            tokio::time::sleep(SECOND_TRY).await;
        }
        let why = problem.map_or_else(String::new, |problem| problem.to_string());
        Err(Error::Invalid(format!("cannot delete {} light chassis: {why}", names.len())))
    }
}
