//! The CNI server: handles the requests of the container runtime, which the plugin forwards over a unix socket.
//!
//! ```text
//!  plugin ──POST──▶ server (is it root?) ──▶ Request ──▶ attachment lock (one request at a time)
//!     ▲                                                  ├─ ADD: pods ─▶ kernel ─▶ switch ─▶ ovn-installed
//!     └───────────── AddResult | Failure ◀───────────────┼─ DEL: switch, kernel
//!                                                        └─ CHECK, STATUS, GC
//! ```

mod add;
mod attachment_locks;
mod check;
mod cleanup;
pub(crate) mod install;
mod isolation;
mod metrics;
mod records;
mod remove;
mod repair;
mod server;
mod wiring;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni::{AddResult, Code, Command, Failure, Request, Version};
use kubernetes::Recorder;
use telemetry::{Shutdown, Telemetry};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::error::NodeError;
use crate::pods::{Pods, PublishedPorts};
use crate::readiness::State;
use crate::switch::ports::{PortError, Ports};

pub(crate) use cleanup::clean_up;

/// Concurrent blocking calls of the kernel: each occupies a thread.
const MAX_BLOCKING: usize = 4;

/// The parts of the agent that the server uses.
#[derive(Debug, Clone)]
pub(crate) struct Dependencies {
    /// Networks of this node's pods.
    pub(crate) pods: Pods,
    /// Ports of br-int.
    pub(crate) ports: Ports,
    /// MTU of new pods.
    pub(crate) mtu: watch::Receiver<u32>,
    /// Whether pods can be connected.
    pub(crate) state: watch::Receiver<State>,
    /// Host ports whose flows and rules are applied.
    pub(crate) host_ports: watch::Receiver<Option<PublishedPorts>>,
    /// Writes Events about pods.
    pub(crate) recorder: Recorder,
    /// Directory of the socket and of the records.
    pub(crate) directory: PathBuf,
    /// How long an ADD waits for the addresses and flows of a pod.
    pub(crate) add_timeout: Duration,
}

/// The CNI server and its reconcilers.
#[derive(Debug, Clone)]
pub(crate) struct CniServer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    deps: Dependencies,
    locks: attachment_locks::AttachmentLocks,
    records: records::Records,
    blocking: Semaphore,
    metrics: metrics::Metrics,
}

impl CniServer {
    /// Reads the records of an earlier agent; does not listen yet.
    pub(crate) fn new(deps: Dependencies, telemetry: &Telemetry) -> Self {
        let metrics = metrics::Metrics::register(telemetry, &deps.ports);
        let records = records::Records::load(&deps.directory);
        let blocking = Semaphore::new(MAX_BLOCKING);
        let inner = Inner { deps, locks: attachment_locks::AttachmentLocks::default(), records, blocking, metrics };
        Self { inner: Arc::new(inner) }
    }

    /// Serves requests until shutdown. Fails if the socket cannot be created.
    pub(crate) async fn serve(self, shutdown: Shutdown) -> Result<(), NodeError> {
        let tasks = [
            tokio::spawn(self.inner.clone().remove_orphaned()),
            tokio::spawn(self.inner.clone().isolate_pods()),
            tokio::spawn(self.inner.clone().repair_ports()),
        ];
        let served = server::serve(self.inner, shutdown).await;
        for task in tasks {
            task.abort();
        }
        served
    }
}

impl Inner {
    /// Handles one request; returns the result or the error as JSON. `hung_up` resolves when the runtime closes the connection.
    async fn handle(self: Arc<Self>, body: Vec<u8>, hung_up: oneshot::Receiver<()>) -> Result<String, String> {
        let start = Instant::now();
        let request = Request::parse(&body).map_err(|(failure, version)| {
            tracing::warn!(error = %failure, "rejected an invalid CNI request");
            failure.to_json(version)
        })?;
        drop(body);
        let (command, version) = (request.command.name(), request.configuration.version);
        let result = self.execute(request, hung_up).await;
        self.metrics.observe(command, result.is_ok(), start.elapsed());
        result.map_err(|failure| failure.to_json(version))
    }

    async fn execute(&self, request: Request, hung_up: oneshot::Receiver<()>) -> Result<String, Failure> {
        let Request { command, configuration } = request;
        let nothing = |()| String::new();
        match command {
            Command::Add { attachment, netns, pod } => {
                let result = self.add(&attachment, &netns, &pod, hung_up).await?;
                Ok(AddResult { dns: configuration.dns, ..result }.to_json(configuration.version))
            }
            Command::Delete { attachment, .. } => self.delete(&attachment).await.map(nothing),
            Command::Check { attachment, netns, pod } => self.check(&attachment, &netns, &pod).await.map(nothing),
            Command::Status => self.status().map(nothing),
            Command::CollectGarbage => {
                self.collect_garbage(&configuration.valid_attachments.unwrap_or_default()).await.map(nothing)
            }
            Command::Version => Ok(versions()),
        }
    }

    /// STATUS: whether an ADD would succeed.
    fn status(&self) -> Result<(), Failure> {
        if let Err(why) = self.deps.ports.reachable() {
            return Err(port_failure(&PortError::Unreachable(why), Code::NotAvailable));
        }
        match &*self.deps.state.borrow() {
            Ok(()) => Ok(()),
            Err(why) => {
                Err(Failure::new(Code::NotAvailable, "this node's network is not ready").with_details(why.as_str()))
            }
        }
    }

    /// Whether br-int has the userspace datapath, on which a pod's interface depends. Waits for the first connection to OVSDB.
    async fn userspace(&self, deadline: tokio::time::Instant) -> Result<bool, Failure> {
        let ports = &self.deps.ports;
        if ports.userspace().is_none() {
            let mut status = ports.status();
            let _ = tokio::time::timeout_at(deadline, status.wait_for(|status| status.connected)).await;
        }
        ports.userspace().ok_or_else(|| {
            let error = ports.reachable().map_or_else(PortError::Unreachable, |()| PortError::NoBridge);
            port_failure(&error, Code::TryAgainLater)
        })
    }

    /// Runs a short blocking call of the kernel on another thread.
    async fn run_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
        // The semaphore is never closed.
        let _permit = self.blocking.acquire().await.ok();
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| Failure::new(Code::Internal, "a blocking call panicked").with_details(error.to_string()))
    }
}

/// The CNI error for a port; `temporary` is the code if a retry may help.
fn port_failure(error: &PortError, temporary: Code) -> Failure {
    let (code, remedy) = match error {
        PortError::Unreachable(_) => (temporary, "start Open vSwitch on this node (ovsdb-server)"),
        PortError::NoBridge => (temporary, "see the log of ovn-controller on this node"),
        PortError::Refused(_) => (Code::Internal, "this is a bug"),
        PortError::Interface(_) => (Code::Internal, "see the log of ovs-vswitchd"),
        PortError::Removed => (Code::PodReplaced, "the runtime removes this sandbox"),
    };
    Failure::new(code, error.to_string()).with_details(remedy)
}

fn versions() -> String {
    let all: Vec<&str> = Version::ALL.into_iter().map(Version::name).collect();
    serde_json::json!({"cniVersion": Version::V1_1_0.name(), "supportedVersions": all}).to_string()
}
