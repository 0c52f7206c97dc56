//! The CNI server: what the container runtime asks for, by its plugin, over a socket of the host.
//!
//! ```text
//!  plugin ──POST──▶ server (who asks?) ──▶ Request ──▶ desk (one at a time for each interface)
//!     ▲                                                  ├─ ADD: pods ─▶ kernel ─▶ switch ─▶ ovn-installed
//!     └───────────── Answer | Failure ◀──────────────────┼─ DEL: switch, kernel
//!                                                        └─ CHECK, STATUS, GC
//! ```

mod add;
mod check;
mod cleanup;
mod desk;
pub mod install;
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

use cni::{Answer, Code, Command, Failure, Request, Version};
use kubernetes::Recorder;
use telemetry::{Shutdown, Telemetry};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::pods::{Pods, Published};
use crate::readiness::State;
use crate::switch::ports::{PortError, Ports};

pub use cleanup::clean_up;

/// So many pods' interfaces are made at once at most: each takes a thread of its own for a moment.
const THREADS: usize = 4;

/// What the server stands on.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The pods of this node.
    pub pods: Pods,
    /// The ports of pods.
    pub ports: Ports,
    /// The pods' MTU, as it is now.
    pub mtu: watch::Receiver<u32>,
    /// Whether pods can be wired; why not.
    pub state: watch::Receiver<State>,
    /// The host ports that lead to their pods.
    pub host_ports: watch::Receiver<Option<Published>>,
    /// Where Events about pods go.
    pub recorder: Recorder,
    /// The folder of the socket.
    pub folder: PathBuf,
    /// How long a pod waits for its annotation, and then for its flows.
    pub patience: Duration,
}

/// The CNI server.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    parts: Parts,
    desk: desk::Desk,
    records: records::Records,
    threads: Semaphore,
    metrics: metrics::Metrics,
}

impl Service {
    /// A server that is not asked yet.
    pub fn new(parts: Parts, telemetry: &Telemetry) -> Self {
        let metrics = metrics::Metrics::register(telemetry, &parts.ports);
        let records = records::Records::load(&parts.folder);
        let threads = Semaphore::new(THREADS);
        let inner = Inner { parts, desk: desk::Desk::default(), records, threads, metrics };
        Self { inner: Arc::new(inner) }
    }

    /// Answers until it is told to stop. Fails if the socket cannot be made.
    pub async fn serve(self, shutdown: Shutdown) -> Result<(), String> {
        let beside = [
            tokio::spawn(self.inner.clone().remove_stale()),
            tokio::spawn(self.inner.clone().keep_isolated()),
            tokio::spawn(self.inner.clone().keep_ports()),
        ];
        let served = server::serve(self.inner, shutdown).await;
        for task in beside {
            task.abort();
        }
        served
    }
}

impl Inner {
    /// The answer to one request: a result or an error, in JSON. `gone` is told when nobody waits for it any more.
    async fn answer(self: Arc<Self>, body: Vec<u8>, gone: oneshot::Receiver<()>) -> Result<String, String> {
        let begun = Instant::now();
        let request = Request::parse(&body).map_err(|(failure, version)| {
            tracing::warn!(%failure, "a request that cannot be read");
            failure.to_json(version)
        })?;
        drop(body);
        let (command, version) = (request.command.name(), request.configuration.version);
        let result = self.fulfil(request, gone).await;
        self.metrics.observe(command, result.is_ok(), begun.elapsed());
        result.map_err(|failure| failure.to_json(version))
    }

    async fn fulfil(&self, request: Request, gone: oneshot::Receiver<()>) -> Result<String, Failure> {
        let Request { command, configuration } = request;
        let nothing = |()| String::new();
        match command {
            Command::Add { attachment, namespace, pod } => {
                let answer = self.add(&attachment, &namespace, &pod, gone).await?;
                Ok(Answer { dns: configuration.dns, ..answer }.to_json(configuration.version))
            }
            Command::Delete { attachment, .. } => self.delete(&attachment).await.map(nothing),
            Command::Check { attachment, namespace, pod } => {
                self.check(&attachment, &namespace, &pod).await.map(nothing)
            }
            Command::Status => self.status().map(nothing),
            Command::CollectGarbage => {
                self.collect_garbage(&configuration.in_use.unwrap_or_default()).await.map(nothing)
            }
            Command::Version => Ok(versions()),
        }
    }

    /// Whether an ADD would work.
    fn status(&self) -> Result<(), Failure> {
        if let Err(why) = self.parts.ports.reachable() {
            return Err(of_port(&PortError::Unreachable(why), Code::NotAvailable));
        }
        match &*self.parts.state.borrow() {
            Ok(()) => Ok(()),
            Err(why) => {
                Err(Failure::new(Code::NotAvailable, "this node's network is not ready").with_details(why.as_str()))
            }
        }
    }

    /// Whether br-int forwards in userspace; a pod's interface depends on it. Waits for the database where it was never there.
    async fn userspace(&self, deadline: tokio::time::Instant) -> Result<bool, Failure> {
        let ports = &self.parts.ports;
        if ports.userspace().is_none() {
            let mut status = ports.status();
            let _ = tokio::time::timeout_at(deadline, status.wait_for(|status| status.connected)).await;
        }
        ports.userspace().ok_or_else(|| {
            let error = ports.reachable().map_or_else(PortError::Unreachable, |()| PortError::NoBridge);
            of_port(&error, Code::TryAgainLater)
        })
    }

    /// Runs something short that waits for the kernel, beside everything else.
    async fn beside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
        // It is never closed.
        let _permit = self.threads.acquire().await.ok();
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| {
            Failure::new(Code::Internal, "the work with the kernel ended").with_details(error.to_string())
        })
    }
}

/// What the runtime is told of a port.
fn of_port(error: &PortError, temporary: Code) -> Failure {
    let (code, remedy) = match error {
        PortError::Unreachable(_) => (temporary, "start Open vSwitch on this node (ovsdb-server)"),
        PortError::NoBridge => (temporary, "look at ovn-controller on this node"),
        PortError::Refused(_) => (Code::Internal, "this is a bug"),
        PortError::Interface(_) => (Code::Internal, "look at the log of ovs-vswitchd"),
        PortError::Removed => (Code::PodReplaced, "the runtime will remove this sandbox"),
    };
    Failure::new(code, error.to_string()).with_details(remedy)
}

fn versions() -> String {
    let all: Vec<&str> = Version::ALL.into_iter().map(Version::name).collect();
    serde_json::json!({"cniVersion": Version::V1_1_0.name(), "supportedVersions": all}).to_string()
}
