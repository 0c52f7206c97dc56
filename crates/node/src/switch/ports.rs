//! Ports of pods on br-int. One task writes them: requests that arrive during a transaction are batched in the next one. The
//! replica shows when ovn-controller has installed a port.

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

/// Time limit of a transaction, including a reconnect.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest number of requests in a transaction.
const BATCH: usize = 128;
/// How long a batch waits for announced ports: ovs-vswitchd reads all its ports after each transaction.
const GATHER_TIME: Duration = Duration::from_millis(50);

/// Why a port was not created or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PortError {
    #[error("not connected to Open vSwitch's database: {0}")]
    Unreachable(String),
    #[error("bridge {INTEGRATION_BRIDGE} not found; check that ovn-controller is running")]
    NoBridge,
    #[error("Open vSwitch's database rejected the port: {0}")]
    Refused(String),
    /// ovs-vswitchd set the interface's column `error`.
    #[error("ovs-vswitchd cannot use the interface: {0}")]
    Interface(String),
    #[error("the port was removed: a newer sandbox of the same pod may have replaced it")]
    Removed,
}

/// Receives the result of a request.
type Reply<T> = oneshot::Sender<Result<T, PortError>>;
/// Resolves when ovn-controller has installed a port.
pub(crate) type Installed = oneshot::Receiver<Result<(), PortError>>;

#[derive(Debug)]
enum PortRequest {
    Attach {
        port: Box<PodPort>,
        reply: Reply<Installed>,
    },
    /// Without a reply it is retried until it succeeds.
    Detach {
        selector: PortSelector,
        reply: Option<Reply<usize>>,
    },
}

/// Which ports are to be removed.
#[derive(Debug, Clone)]
pub(crate) enum PortSelector {
    /// Those of one attachment.
    Sandbox { sandbox: String, interface: String },
    /// Port rows, whether or not the replica has them yet.
    Rows(Vec<Uuid>),
}

/// Handle of the task that writes pods' ports. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Ports {
    client: Client,
    requests: mpsc::UnboundedSender<PortRequest>,
    random: Arc<RandomState>,
    transactions: Counter,
    pending: Arc<AtomicUsize>,
}

/// An ADD that will request a port soon; dropped if it does not.
#[derive(Debug)]
pub(crate) struct PendingPort(Arc<AtomicUsize>);

impl Drop for PendingPort {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ports {
    /// Starts the writer, which runs until the runtime ends.
    pub(crate) fn start(client: &Client) -> Self {
        let (requests, waiting) = mpsc::unbounded_channel();
        let (transactions, pending) = (Counter::default(), Arc::new(AtomicUsize::new(0)));
        let writer = Writer {
            client: client.clone(),
            changes: client.subscribe(),
            queue: VecDeque::new(),
            awaited: HashMap::new(),
            singly: false,
            transactions: transactions.clone(),
            pending: pending.clone(),
        };
        tokio::spawn(writer.run(waiting));
        Self { client: client.clone(), requests, random: Arc::new(RandomState::new()), transactions, pending }
    }

    /// Metric: number of transactions.
    pub(crate) fn transactions(&self) -> Counter {
        self.transactions.clone()
    }

    /// A random UUID for a new row. `salt` need not be unique.
    pub(crate) fn new_uuid(&self, salt: &str) -> Uuid {
        let mut bytes = [0; 16];
        let half = |half: u8| self.random.hash_one((salt, half, kubernetes::timestamp_nanoseconds())).to_be_bytes();
        bytes[..8].copy_from_slice(&half(0));
        bytes[8..].copy_from_slice(&half(1));
        Uuid::from_bytes(bytes)
    }

    /// Whether br-int has the userspace datapath; None without br-int.
    pub(crate) fn userspace(&self) -> Option<bool> {
        let snapshot = self.client.snapshot();
        rows::bridge(&snapshot).map(|row| row.text("datapath_type").is_some_and(|kind| kind == "netdev"))
    }

    /// Notifies of every change of the database.
    pub(crate) fn subscribe(&self) -> Subscription {
        self.client.subscribe()
    }

    /// The replica of the database.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.client.snapshot()
    }

    /// The error says why the database is not connected.
    pub(crate) fn reachable(&self) -> Result<(), String> {
        let status = self.client.status().borrow().clone();
        if status.connected { Ok(()) } else { Err(status.last_error.unwrap_or_else(|| "connecting".to_owned())) }
    }

    /// State of the connection, as it changes.
    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.client.status()
    }

    /// Announces a port, so that the next batch waits for it.
    pub(crate) fn announce(&self) -> PendingPort {
        self.pending.fetch_add(1, Ordering::Relaxed);
        PendingPort(self.pending.clone())
    }

    /// Creates a port, which replaces those of older sandboxes of the same pod. Returns when the database has it.
    pub(crate) async fn attach(&self, port: PodPort, pending_port: PendingPort) -> Result<Installed, PortError> {
        let (reply, answer) = oneshot::channel();
        drop(pending_port);
        self.request(PortRequest::Attach { port: Box::new(port), reply });
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Removes ports; returns how many there were.
    pub(crate) async fn detach(&self, selector: PortSelector) -> Result<usize, PortError> {
        let (reply, answer) = oneshot::channel();
        self.request(PortRequest::Detach { selector, reply: Some(reply) });
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Removes ports in the background, with retries.
    pub(crate) fn discard(&self, selector: PortSelector) {
        self.request(PortRequest::Detach { selector, reply: None });
    }

    fn request(&self, request: PortRequest) {
        // The writer lives as long as this handle.
        let _ = self.requests.send(request);
    }
}

fn ended() -> PortError {
    PortError::Unreachable("the agent is ending".to_owned())
}

struct Writer {
    client: Client,
    changes: Subscription,
    queue: VecDeque<PortRequest>,
    /// Interfaces that ovn-controller has not installed yet.
    awaited: HashMap<Uuid, Reply<()>>,
    /// Requests are written one by one, because the database rejected the batch.
    singly: bool,
    transactions: Counter,
    pending: Arc<AtomicUsize>,
}

impl Writer {
    async fn run(mut self, mut requests: mpsc::UnboundedReceiver<PortRequest>) {
        loop {
            if self.queue.is_empty() {
                self.singly = false;
                tokio::select! {
                    request = requests.recv() => match request {
                        Some(request) => self.queue.push_back(request),
                        None => return,
                    },
                    // Changes matter only while a port is awaited.
                    changes = self.changes.next(), if !self.awaited.is_empty() => {
                        let _ = changes;
                        self.notify_installed();
                    }
                }
                continue;
            }
            self.gather(&mut requests).await;
            self.commit(&mut requests).await;
        }
    }

    /// Takes all queued requests, and waits up to [`GATHER_TIME`] for announced ones.
    async fn gather(&mut self, requests: &mut mpsc::UnboundedReceiver<PortRequest>) {
        let enough = tokio::time::sleep(GATHER_TIME);
        tokio::pin!(enough);
        loop {
            while let Ok(request) = requests.try_recv() {
                self.queue.push_back(request);
            }
            if self.pending.load(Ordering::Relaxed) == 0 || self.queue.len() >= BATCH {
                return;
            }
            tokio::select! {
                () = &mut enough => return,
                Some(request) = requests.recv() => self.queue.push_back(request),
                _ = self.changes.next(), if !self.awaited.is_empty() => self.notify_installed(),
            }
        }
    }

    /// Writes one batch; meanwhile it accepts requests and reports installed ports.
    async fn commit(&mut self, requests: &mut mpsc::UnboundedReceiver<PortRequest>) {
        let batch = self.batch();
        // Ports of older sandboxes are only known while the replica is current.
        if let Err(error) = self.client.connected(TRANSACTION_TIMEOUT).await {
            self.complete(batch.into_iter().map(|request| (request, 0)).collect(), Err(error));
            return;
        }
        let snapshot = self.client.snapshot();
        let Some(written) = Batch::write(batch, &snapshot) else { return };
        if written.transaction.is_empty() {
            self.complete(written.requests, Ok(()));
            return;
        }
        self.transactions.inc();
        let client = self.client.clone();
        let committing = async { client.transact_within(&written.transaction, TRANSACTION_TIMEOUT).await };
        tokio::pin!(committing);
        let outcome = loop {
            tokio::select! {
                outcome = &mut committing => break outcome,
                _ = self.changes.next(), if !self.awaited.is_empty() => self.notify_installed(),
                Some(request) = requests.recv() => self.queue.push_back(request),
            }
        };
        self.complete(written.requests, outcome.map(|_| ()));
    }

    /// The next batch: of two requests for the same port the later waits.
    fn batch(&mut self) -> Vec<PortRequest> {
        let limit = if self.singly { 1 } else { BATCH };
        let (mut batch, mut later, mut names) = (Vec::new(), VecDeque::new(), HashSet::new());
        while let Some(request) = self.queue.pop_front() {
            if batch.len() >= limit || !names.insert(request.conflict_key()) {
                later.push_back(request);
            } else {
                batch.push(request);
            }
        }
        self.queue = later;
        batch
    }

    fn complete(&mut self, requests: Vec<(PortRequest, usize)>, outcome: Result<(), CallError>) {
        let error = match outcome {
            Ok(()) => None,
            // One invalid request fails the whole batch: written singly, only that one fails.
            Err(CallError::Refused(refusal)) if requests.len() > 1 => {
                tracing::warn!(error = %refusal, "OVSDB rejected the batch; retrying ports singly");
                self.singly = true;
                for (request, _) in requests.into_iter().rev() {
                    self.queue.push_front(request);
                }
                return;
            }
            Err(CallError::Refused(refusal)) => Some(PortError::Refused(refusal.to_string())),
            Err(other) => Some(PortError::Unreachable(other.to_string())),
        };
        for (request, count) in requests {
            match (request, error.clone()) {
                (PortRequest::Attach { port, reply }, None) => {
                    let (installed, receiver) = oneshot::channel();
                    self.awaited.insert(port.interface_row, installed);
                    let _ = reply.send(Ok(receiver));
                }
                (PortRequest::Attach { reply, .. }, Some(error)) => {
                    let _ = reply.send(Err(error));
                }
                (PortRequest::Detach { reply: Some(reply), .. }, error) => {
                    let _ = reply.send(error.map_or(Ok(count), Err));
                }
                (PortRequest::Detach { selector, reply: None }, Some(error))
                    if !matches!(error, PortError::Refused(_)) =>
                {
                    tracing::warn!(%error, ?selector, "cannot remove OVS ports; retrying");
                    self.queue.push_back(PortRequest::Detach { selector, reply: None });
                }
                (PortRequest::Detach { reply: None, .. }, _) => {}
            }
        }
        self.notify_installed();
    }

    fn notify_installed(&mut self) {
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

/// The result for a waiting ADD; None while ovn-controller has not installed the interface.
fn state(row: Option<RowView<'_>>) -> Option<Result<(), PortError>> {
    let Some(row) = row else { return Some(Err(PortError::Removed)) };
    if let Some(error) = row.text("error").filter(|error| !error.is_empty()) {
        return Some(Err(PortError::Interface(error)));
    }
    let port = row.integer("ofport").is_some_and(|port| port > 0);
    (port && rows::external_id(&row, "ovn-installed").as_deref() == Some("true")).then_some(Ok(()))
}

impl PortRequest {
    /// Two requests with the same key must not be in one batch.
    fn conflict_key(&self) -> String {
        match self {
            Self::Attach { port, .. } => format!("port {}", port.logical_port),
            Self::Detach { selector: PortSelector::Sandbox { sandbox, interface }, .. } => {
                format!("sandbox {sandbox} {interface}")
            }
            Self::Detach { selector: PortSelector::Rows(rows), .. } => format!("rows {rows:?}"),
        }
    }
}

/// Requests, each with the number of ports that it removes, and their transaction.
struct Batch {
    requests: Vec<(PortRequest, usize)>,
    transaction: Transaction,
}

impl Batch {
    /// None if no request is left: without br-int, ports cannot be created.
    fn write(requests: Vec<PortRequest>, snapshot: &Snapshot) -> Option<Self> {
        let bridge = rows::bridge(snapshot).map(|row| row.uuid);
        let mut transaction = Transaction::new();
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        let mut kept = Vec::with_capacity(requests.len());
        for request in requests {
            match &request {
                PortRequest::Attach { port, .. } if bridge.is_some() => {
                    removed.extend(rows::replaced_ports(snapshot, port));
                    rows::insert(&mut transaction, port);
                    added.push(port.port_row);
                    kept.push((request, 0));
                }
                PortRequest::Attach { .. } => {
                    if let PortRequest::Attach { reply, .. } = request {
                        let _ = reply.send(Err(PortError::NoBridge));
                    }
                }
                PortRequest::Detach { selector, .. } => {
                    let gone = match selector {
                        PortSelector::Sandbox { sandbox, interface } => {
                            rows::sandbox_ports(snapshot, sandbox, interface)
                        }
                        PortSelector::Rows(rows) => rows.clone(),
                    };
                    let count = gone.len();
                    removed.extend(gone);
                    kept.push((request, count));
                }
            }
        }
        if let Some(bridge) = bridge {
            rows::change_bridge(&mut transaction, bridge, &removed, &added);
        }
        (!kept.is_empty()).then_some(Self { requests: kept, transaction })
    }
}
