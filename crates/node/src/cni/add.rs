//! ADD: connects a pod completely, or rolls back.

use std::path::PathBuf;

use cni::{AddResult, Attachment, Code, Failure, PodReference};
use objects::PodKey;
use ovsdb::uuid::Uuid;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::attachment_locks::AttachmentLock;
use super::records::Record;
use super::{Inner, port_failure, wiring};
use crate::kernel::pod_link::{self, LinkError};
use crate::pods::{PodConfig, PublishedPorts};
use crate::switch::ports::{PendingPort, PortError, PortSelector};
use crate::switch::rows::PodPort;

/// What cancels an ADD: a DEL of the attachment, or a runtime that hung up.
struct Cancellation<'a> {
    lock: AttachmentLock<'a>,
    gone: oneshot::Receiver<()>,
}

impl Cancellation<'_> {
    /// Returns when the result is no longer wanted.
    async fn cancelled(&mut self) -> Failure {
        let why = tokio::select! {
            () = self.lock.delete_requested() => "the runtime sent DEL for this interface",
            _ = &mut self.gone => "the runtime closed the connection",
        };
        Failure::new(Code::TryAgainLater, "ADD was cancelled").with_details(why)
    }
}

impl Inner {
    pub(super) async fn add(
        &self,
        attachment: &Attachment,
        netns: &str,
        pod: &PodReference,
        gone: oneshot::Receiver<()>,
    ) -> Result<AddResult, Failure> {
        let lock = self.locks.lock(attachment).await;
        let added = self.connect_pod(attachment, netns, pod, Cancellation { lock, gone }).await;
        let (space, name, sandbox) = (&pod.namespace, &pod.name, &attachment.container);
        match &added {
            Ok(result) => {
                let addresses = result.addresses.iter().map(|it| it.address.to_string()).collect::<Vec<_>>().join(",");
                tracing::info!(namespace = space, pod = name, addresses, sandbox, "connected pod");
            }
            Err(failure) => {
                tracing::warn!(namespace = space, pod = name, sandbox, error = %failure, "cannot connect pod; the runtime retries");
            }
        }
        added
    }

    async fn connect_pod(
        &self,
        attachment: &Attachment,
        netns: &str,
        pod: &PodReference,
        mut cancellation: Cancellation<'_>,
    ) -> Result<AddResult, Failure> {
        // One deadline for all steps; the runtime's own limit is two minutes.
        let deadline = Instant::now() + self.deps.add_timeout;
        let config = tokio::select! {
            config = timeout_at(deadline, self.deps.pods.wait_for_config(pod)) => {
                config.unwrap_or_else(|_| Err(self.no_network(pod)))?
            }
            failure = cancellation.cancelled() => return Err(failure),
        };
        let userspace = tokio::select! {
            userspace = self.userspace(deadline) => userspace?,
            failure = cancellation.cancelled() => return Err(failure),
        };
        let pending = self.deps.ports.announce();
        let mtu = *self.deps.mtu.borrow();
        let link = wiring::link(attachment, &config, mtu, userspace);
        let (making, path) = (link.clone(), PathBuf::from(netns));
        self.run_blocking(move || making.create(&path)).await?.map_err(|error| link_failure(&error))?;

        let rows = (self.deps.ports.new_uuid(&attachment.container), self.deps.ports.new_uuid(&link.host));
        let port = wiring::port(attachment, &config, netns, rows);
        let record = Record::new(&config.key, &port);
        let connected = tokio::select! {
            connected = self.create_port(port, pending, &config, deadline) => connected,
            failure = cancellation.cancelled() => Err(failure),
        };
        if let Err(failure) = connected {
            self.roll_back(rows.0, link.host).await;
            return Err(failure);
        }
        self.records.insert(record);
        Ok(wiring::result(&link, &config, netns))
    }

    /// Creates the port, and waits for its flows and host ports.
    async fn create_port(
        &self,
        port: PodPort,
        pending: PendingPort,
        config: &PodConfig,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let port_failure = |error: PortError| port_failure(&error, Code::TryAgainLater);
        let logical = port.logical_port.clone();
        let installed = self.deps.ports.attach(port, pending).await.map_err(port_failure)?;
        let waiting = async {
            tokio::select! {
                // First: a pod that was replaced is not connected, even if its flows are installed.
                biased;
                failure = self.deps.pods.wait_until_gone(&config.key, &config.uid) => Err(failure),
                installed = installed => match installed {
                    Ok(installed) => installed.map_err(port_failure),
                    Err(_) => Err(port_failure(PortError::Unreachable("the agent is shutting down".to_owned()))),
                },
            }
        };
        timeout_at(deadline, waiting).await.unwrap_or_else(|_| Err(self.no_flows(&logical)))?;
        if config.host_ports.is_empty() {
            return Ok(());
        }
        // Clients may connect as soon as the pod runs.
        let mut open = self.deps.host_ports.clone();
        let all = |open: &Option<PublishedPorts>| open.as_ref().is_some_and(|open| config.has_open_host_ports(open));
        tokio::select! {
            failure = self.deps.pods.wait_until_gone(&config.key, &config.uid) => Err(failure),
            opened = timeout_at(deadline, open.wait_for(all)) => match opened {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(self.host_ports_not_open(&config.key)),
            },
        }
    }

    /// Rolls back a failed ADD: the OVS port (later if OVSDB is down) and the veth pair.
    pub(super) async fn roll_back(&self, port: Uuid, host_end: String) {
        self.records.remove(&host_end);
        let selector = PortSelector::Rows(vec![port]);
        match self.deps.ports.reachable() {
            Ok(()) => {
                if self.deps.ports.detach(selector.clone()).await.is_err() {
                    self.deps.ports.discard(selector);
                }
            }
            Err(_) => self.deps.ports.discard(selector),
        }
        let removed = self.run_blocking(move || (pod_link::remove_pair(&host_end), host_end)).await;
        if let Ok((Err(error), interface)) = removed {
            tracing::warn!(interface, %error, "cannot remove the interface of a failed ADD; DEL removes it");
        }
    }

    fn no_network(&self, pod: &PodReference) -> Failure {
        let PodReference { namespace, name, .. } = pod;
        let waited = self.deps.add_timeout;
        let message = format!("pod {namespace}/{name} has no network from ovnkube controller after {waited:?}");
        Failure::new(Code::TryAgainLater, message).with_details(self.deps.pods.missing_config_reason(pod))
    }

    fn host_ports_not_open(&self, pod: &PodKey) -> Failure {
        let message = format!("the host ports of pod {pod} are not open after {:?}", self.deps.add_timeout);
        let remedy = match &*self.deps.state.borrow() {
            Ok(()) => "see the gateway's errors in the log of ovnkube node".to_owned(),
            Err(why) => why.clone(),
        };
        Failure::new(Code::TryAgainLater, message).with_details(remedy)
    }

    fn no_flows(&self, logical: &str) -> Failure {
        let waited = self.deps.add_timeout;
        let message = format!("ovn-controller has not installed the flows of port {logical} within {waited:?}");
        let remedy = match &*self.deps.state.borrow() {
            Ok(()) => "see the log of ovn-controller on this node, and check that ovn-northd is running".to_owned(),
            Err(why) => why.clone(),
        };
        Failure::new(Code::TryAgainLater, message).with_details(remedy)
    }
}

/// The CNI error for an interface that cannot be created.
pub(super) fn link_failure(error: &LinkError) -> Failure {
    let (code, source) = match error {
        LinkError::Namespace { source, .. } => (Code::UnknownContainer, source),
        LinkError::Object { source, .. } => (Code::Io, source),
    };
    Failure::new(code, error.to_string()).with_details(source.to_string())
}
