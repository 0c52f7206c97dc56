//! Ports of pods on the integration bridge. One task writes them: what arrives while a transaction is on its way goes
//! together in the next one, and whoever waits for ovn-controller is told by the replica.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ovsdb::client::{CallError, Client, Status, Subscription};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::transaction::Transaction;
use ovsdb::uuid::Uuid;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot, watch};

use super::rows::{self, PodPort};
use crate::options::INTEGRATION_BRIDGE;

/// How long a transaction may take before whoever waits is told that it does not work.
const PATIENCE: Duration = Duration::from_secs(20);
/// So many ports are written at once at most.
const BATCH: usize = 128;
/// So long the first of several waits for the others that are on their way: ovs-vswitchd looks at all its ports after each
/// transaction.
const GATHERING: Duration = Duration::from_millis(50);

/// A port that is not as it was wished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The database cannot be reached.
    #[error("the database of Open vSwitch cannot be reached: {0}")]
    Unreachable(String),
    /// There is no bridge.
    #[error("there is no bridge {INTEGRATION_BRIDGE}: ovn-controller makes it, so it may not run")]
    NoBridge,
    /// The database refused.
    #[error("the database of Open vSwitch refused the port: {0}")]
    Refused(String),
    /// ovs-vswitchd cannot use the interface.
    #[error("ovs-vswitchd cannot use the interface: {0}")]
    Interface(String),
    /// Somebody removed it.
    #[error("the port was removed: a newer sandbox of the same pod may have taken its place")]
    Removed,
}

/// The end of a wish; none if nobody asks.
type Reply<T> = oneshot::Sender<Result<T, PortError>>;
/// Told when ovn-controller has installed a port.
pub type Installed = oneshot::Receiver<Result<(), PortError>>;

#[derive(Debug)]
enum Wish {
    Attach {
        port: Box<PodPort>,
        reply: Reply<Installed>,
    },
    /// Removal; without anybody to reply to it is tried until it is done.
    Detach {
        which: Which,
        reply: Option<Reply<usize>>,
    },
}

/// Ports that are to go.
#[derive(Debug, Clone)]
pub enum Which {
    /// Those of a sandbox's interface.
    Sandbox {
        /// The sandbox.
        sandbox: String,
        /// The interface in it.
        interface: String,
    },
    /// These rows, whether or not they are there already.
    Rows(Vec<Uuid>),
}

/// The ports of pods. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ports {
    client: Client,
    wishes: mpsc::UnboundedSender<Wish>,
    random: Arc<RandomState>,
    transactions: Counter,
    coming: Arc<AtomicUsize>,
}

/// A port that is on its way. Dropping it says that it does not come.
#[derive(Debug)]
pub struct Announced(Arc<AtomicUsize>);

impl Drop for Announced {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ports {
    /// Begins to write them, for as long as the runtime lives.
    pub fn start(client: &Client) -> Self {
        let (wishes, waiting) = mpsc::unbounded_channel();
        let (transactions, coming) = (Counter::default(), Arc::new(AtomicUsize::new(0)));
        let writer = Writer {
            client: client.clone(),
            changes: client.subscribe(),
            queue: VecDeque::new(),
            awaited: HashMap::new(),
            alone: false,
            transactions: transactions.clone(),
            coming: coming.clone(),
        };
        tokio::spawn(writer.run(waiting));
        Self { client: client.clone(), wishes, random: Arc::new(RandomState::new()), transactions, coming }
    }

    /// How many transactions there were.
    pub fn transactions(&self) -> Counter {
        self.transactions.clone()
    }

    /// An identity for a row that nobody has used.
    pub fn fresh(&self, about: &str) -> Uuid {
        let mut bytes = [0; 16];
        let half = |salt: u8| self.random.hash_one((about, salt, kubernetes::timestamp_nanoseconds())).to_be_bytes();
        bytes[..8].copy_from_slice(&half(0));
        bytes[8..].copy_from_slice(&half(1));
        Uuid::from_bytes(bytes)
    }

    /// Whether the bridge forwards in userspace; none while there is no bridge.
    pub fn userspace(&self) -> Option<bool> {
        let snapshot = self.client.snapshot();
        rows::bridge(&snapshot).map(|row| row.text("datapath_type").is_some_and(|kind| kind == "netdev"))
    }

    /// Told whenever the database changes.
    pub fn subscribe(&self) -> Subscription {
        self.client.subscribe()
    }

    /// The database as it is.
    pub fn snapshot(&self) -> Snapshot {
        self.client.snapshot()
    }

    /// Whether the database is there; why not.
    pub fn reachable(&self) -> Result<(), String> {
        let status = self.client.status().borrow().clone();
        if status.connected {
            Ok(())
        } else {
            Err(status.last_error.unwrap_or_else(|| "it was never there".to_owned()))
        }
    }

    /// How the database stands, as it changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.client.status()
    }

    /// Says that a port comes soon.
    pub fn announce(&self) -> Announced {
        self.coming.fetch_add(1, Ordering::Relaxed);
        Announced(self.coming.clone())
    }

    /// Makes a port, in place of those of older sandboxes of the same pod. Returns when the database has it.
    pub async fn attach(&self, port: PodPort, announced: Announced) -> Result<Installed, PortError> {
        let (reply, answer) = oneshot::channel();
        drop(announced);
        self.wish(Wish::Attach { port: Box::new(port), reply });
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Removes ports; how many there were.
    pub async fn detach(&self, which: Which) -> Result<usize, PortError> {
        let (reply, answer) = oneshot::channel();
        self.wish(Wish::Detach { which, reply: Some(reply) });
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Removes ports, as soon as that can be done.
    pub fn discard(&self, which: Which) {
        self.wish(Wish::Detach { which, reply: None });
    }

    fn wish(&self, wish: Wish) {
        // The writer lives as long as we do.
        let _ = self.wishes.send(wish);
    }
}

fn ended() -> PortError {
    PortError::Unreachable("the agent is ending".to_owned())
}

struct Writer {
    client: Client,
    changes: Subscription,
    queue: VecDeque<Wish>,
    /// Interfaces that ovn-controller has not installed yet.
    awaited: HashMap<Uuid, Reply<()>>,
    /// Whether wishes go one by one, because together they were refused.
    alone: bool,
    transactions: Counter,
    coming: Arc<AtomicUsize>,
}

impl Writer {
    async fn run(mut self, mut wishes: mpsc::UnboundedReceiver<Wish>) {
        loop {
            if self.queue.is_empty() {
                self.alone = false;
                tokio::select! {
                    wish = wishes.recv() => match wish {
                        Some(wish) => self.queue.push_back(wish),
                        None => return,
                    },
                    // Without anybody who waits, nothing of it concerns us.
                    changes = self.changes.next(), if !self.awaited.is_empty() => {
                        let _ = changes;
                        self.tell_installed();
                    }
                }
                continue;
            }
            self.gather(&mut wishes).await;
            self.carry(&mut wishes).await;
        }
    }

    /// Takes what is there, and waits a little for what is on its way.
    async fn gather(&mut self, wishes: &mut mpsc::UnboundedReceiver<Wish>) {
        let enough = tokio::time::sleep(GATHERING);
        tokio::pin!(enough);
        loop {
            while let Ok(wish) = wishes.try_recv() {
                self.queue.push_back(wish);
            }
            if self.coming.load(Ordering::Relaxed) == 0 || self.queue.len() >= BATCH {
                return;
            }
            tokio::select! {
                () = &mut enough => return,
                Some(wish) = wishes.recv() => self.queue.push_back(wish),
                _ = self.changes.next(), if !self.awaited.is_empty() => self.tell_installed(),
            }
        }
    }

    /// Carries one batch; tells meanwhile who is installed and takes what arrives.
    async fn carry(&mut self, wishes: &mut mpsc::UnboundedReceiver<Wish>) {
        let batch = self.batch();
        // What older sandboxes have is only known while the replica follows the database.
        if let Err(error) = self.client.connected(PATIENCE).await {
            self.settle(batch.into_iter().map(|wish| (wish, 0)).collect(), Err(error));
            return;
        }
        let snapshot = self.client.snapshot();
        let Some(written) = Batch::write(batch, &snapshot) else { return };
        if written.transaction.is_empty() {
            self.settle(written.wishes, Ok(()));
            return;
        }
        self.transactions.inc();
        let client = self.client.clone();
        let carrying = async { client.transact_within(&written.transaction, PATIENCE).await };
        tokio::pin!(carrying);
        let outcome = loop {
            tokio::select! {
                outcome = &mut carrying => break outcome,
                _ = self.changes.next(), if !self.awaited.is_empty() => self.tell_installed(),
                Some(wish) = wishes.recv() => self.queue.push_back(wish),
            }
        };
        self.settle(written.wishes, outcome.map(|_| ()));
    }

    /// What goes next: of two wishes about the same port the later waits.
    fn batch(&mut self) -> Vec<Wish> {
        let limit = if self.alone { 1 } else { BATCH };
        let (mut batch, mut later, mut names) = (Vec::new(), VecDeque::new(), HashSet::new());
        while let Some(wish) = self.queue.pop_front() {
            if batch.len() >= limit || !names.insert(wish.about()) {
                later.push_back(wish);
            } else {
                batch.push(wish);
            }
        }
        self.queue = later;
        batch
    }

    fn settle(&mut self, wishes: Vec<(Wish, usize)>, outcome: Result<(), CallError>) {
        let error = match outcome {
            Ok(()) => None,
            // One of them spoils it for all: each for itself, and only that one fails.
            Err(CallError::Refused(refusal)) if wishes.len() > 1 => {
                tracing::warn!(%refusal, "ports are written one by one");
                self.alone = true;
                for (wish, _) in wishes.into_iter().rev() {
                    self.queue.push_front(wish);
                }
                return;
            }
            Err(CallError::Refused(refusal)) => Some(PortError::Refused(refusal.to_string())),
            Err(other) => Some(PortError::Unreachable(other.to_string())),
        };
        for (wish, count) in wishes {
            match (wish, error.clone()) {
                (Wish::Attach { port, reply }, None) => {
                    let (installed, receiver) = oneshot::channel();
                    self.awaited.insert(port.interface_row, installed);
                    let _ = reply.send(Ok(receiver));
                }
                (Wish::Attach { reply, .. }, Some(error)) => {
                    let _ = reply.send(Err(error));
                }
                (Wish::Detach { reply: Some(reply), .. }, error) => {
                    let _ = reply.send(error.map_or(Ok(count), Err));
                }
                (Wish::Detach { which, reply: None }, Some(error)) if !matches!(error, PortError::Refused(_)) => {
                    tracing::warn!(%error, ?which, "a port is still to be removed");
                    self.queue.push_back(Wish::Detach { which, reply: None });
                }
                (Wish::Detach { reply: None, .. }, _) => {}
            }
        }
        self.tell_installed();
    }

    fn tell_installed(&mut self) {
        let snapshot = self.client.snapshot();
        let Some(interfaces) = snapshot.table("Interface") else { return };
        let settled = |(uuid, reply): (&Uuid, &mut Reply<()>)| -> Option<(Uuid, Option<Result<(), PortError>>)> {
            if reply.is_closed() {
                return Some((*uuid, None));
            }
            state(interfaces.get(*uuid)).map(|state| (*uuid, Some(state)))
        };
        let settled: Vec<_> = self.awaited.iter_mut().filter_map(settled).collect();
        for (uuid, state) in settled {
            if let (Some(reply), Some(state)) = (self.awaited.remove(&uuid), state) {
                let _ = reply.send(state);
            }
        }
    }
}

/// How an interface stands; none if that is not settled.
fn state(row: Option<RowView<'_>>) -> Option<Result<(), PortError>> {
    let Some(row) = row else { return Some(Err(PortError::Removed)) };
    if let Some(error) = row.text("error").filter(|error| !error.is_empty()) {
        return Some(Err(PortError::Interface(error)));
    }
    let port = row.integer("ofport").is_some_and(|port| port > 0);
    (port && rows::external_id(&row, "ovn-installed").as_deref() == Some("true")).then_some(Ok(()))
}

impl Wish {
    /// What two wishes must not be about at once.
    fn about(&self) -> String {
        match self {
            Self::Attach { port, .. } => format!("port {}", port.logical),
            Self::Detach { which: Which::Sandbox { sandbox, interface }, .. } => {
                format!("sandbox {sandbox} {interface}")
            }
            Self::Detach { which: Which::Rows(rows), .. } => format!("rows {rows:?}"),
        }
    }
}

/// Wishes and the transaction that fulfils them.
struct Batch {
    wishes: Vec<(Wish, usize)>,
    transaction: Transaction,
}

impl Batch {
    /// None if there is no bridge to write to.
    fn write(wishes: Vec<Wish>, snapshot: &Snapshot) -> Option<Self> {
        let bridge = rows::bridge(snapshot).map(|row| row.uuid);
        let mut transaction = Transaction::new();
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        let mut kept = Vec::with_capacity(wishes.len());
        for wish in wishes {
            match &wish {
                Wish::Attach { port, .. } if bridge.is_some() => {
                    removed.extend(rows::predecessors(snapshot, port));
                    rows::insert(&mut transaction, port);
                    added.push(port.port_row);
                    kept.push((wish, 0));
                }
                Wish::Attach { .. } => {
                    if let Wish::Attach { reply, .. } = wish {
                        let _ = reply.send(Err(PortError::NoBridge));
                    }
                }
                Wish::Detach { which, .. } => {
                    let gone = match which {
                        Which::Sandbox { sandbox, interface } => rows::of_sandbox(snapshot, sandbox, interface),
                        Which::Rows(rows) => rows.clone(),
                    };
                    let count = gone.len();
                    removed.extend(gone);
                    kept.push((wish, count));
                }
            }
        }
        if let Some(bridge) = bridge {
            rows::change_bridge(&mut transaction, bridge, &removed, &added);
        }
        (!kept.is_empty()).then_some(Self { wishes: kept, transaction })
    }
}
