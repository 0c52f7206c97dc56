//! ADD: a pod is wired, whole or not at all.

use std::path::PathBuf;

use cni::{Answer, Attachment, Code, Failure, PodReference};
use ovsdb::uuid::Uuid;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use topology::identity::PodKey;

use super::desk::Turn;
use super::records::Record;
use super::{Inner, of_port, wiring};
use crate::kernel::pod_link::{self, LinkError};
use crate::pods::{Published, Wanted};
use crate::switch::ports::{Announced, PortError, Which};
use crate::switch::rows::PodPort;

/// Who may end the work early.
struct Interruption<'a> {
    turn: Turn<'a>,
    gone: oneshot::Receiver<()>,
}

impl Interruption<'_> {
    /// Returns when the work is for nobody.
    async fn came(&mut self) -> Failure {
        let why = tokio::select! {
            () = self.turn.removal_wished() => "the runtime wants the interface removed",
            _ = &mut self.gone => "the runtime does not wait for the answer any more",
        };
        Failure::new(Code::TryAgainLater, "ADD was given up").with_details(why)
    }
}

impl Inner {
    pub(super) async fn add(
        &self,
        attachment: &Attachment,
        namespace: &str,
        pod: &PodReference,
        gone: oneshot::Receiver<()>,
    ) -> Result<Answer, Failure> {
        let turn = self.desk.turn(attachment).await;
        let added = self.wire(attachment, namespace, pod, Interruption { turn, gone }).await;
        let (space, name, sandbox) = (&pod.namespace, &pod.name, &attachment.container);
        match &added {
            Ok(_) => tracing::info!(namespace = space, pod = name, sandbox, "wired"),
            Err(failure) => tracing::warn!(namespace = space, pod = name, sandbox, %failure, "not wired"),
        }
        added
    }

    async fn wire(
        &self,
        attachment: &Attachment,
        namespace: &str,
        pod: &PodReference,
        mut interruption: Interruption<'_>,
    ) -> Result<Answer, Failure> {
        // One for all: the runtime's own patience is two minutes.
        let deadline = Instant::now() + self.parts.patience;
        let wanted = tokio::select! {
            wanted = timeout_at(deadline, self.parts.pods.wanted(pod)) => {
                wanted.unwrap_or_else(|_| Err(self.not_told(pod)))?
            }
            failure = interruption.came() => return Err(failure),
        };
        let userspace = tokio::select! {
            userspace = self.userspace(deadline) => userspace?,
            failure = interruption.came() => return Err(failure),
        };
        let announced = self.parts.ports.announce();
        let mtu = *self.parts.mtu.borrow();
        let link = wiring::link(attachment, &wanted, mtu, userspace);
        let (making, path) = (link.clone(), PathBuf::from(namespace));
        self.beside(move || making.make(&path)).await?.map_err(|error| of_link(&error))?;

        let rows = (self.parts.ports.fresh(&attachment.container), self.parts.ports.fresh(&link.host));
        let port = wiring::port(attachment, &wanted, namespace, rows);
        let record = Record::of(&wanted.key, &port);
        let connected = tokio::select! {
            connected = self.connect(port, announced, &wanted, deadline) => connected,
            failure = interruption.came() => Err(failure),
        };
        if let Err(failure) = connected {
            self.undo(rows.0, link.host).await;
            return Err(failure);
        }
        self.records.keep(record);
        Ok(wiring::answer(&link, &wanted, namespace))
    }

    /// Makes the port, and waits for its flows.
    async fn connect(
        &self,
        port: PodPort,
        announced: Announced,
        wanted: &Wanted,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let of_port = |error: PortError| of_port(&error, Code::TryAgainLater);
        let logical = port.logical.clone();
        let installed = self.parts.ports.attach(port, announced).await.map_err(of_port)?;
        let waiting = async {
            tokio::select! {
                // A pod that is replaced is not wired, even if its flows are there.
                biased;
                failure = self.parts.pods.lost(&wanted.key, &wanted.uid) => Err(failure),
                installed = installed => match installed {
                    Ok(installed) => installed.map_err(of_port),
                    Err(_) => Err(of_port(PortError::Unreachable("the agent is ending".to_owned()))),
                },
            }
        };
        timeout_at(deadline, waiting).await.unwrap_or_else(|_| Err(self.not_installed(&logical)))?;
        if wanted.host_ports.is_empty() {
            return Ok(());
        }
        // Clients may come as soon as the pod runs.
        let mut open = self.parts.host_ports.clone();
        let all = |open: &Option<Published>| open.as_ref().is_some_and(|open| wanted.has_open_host_ports(open));
        tokio::select! {
            failure = self.parts.pods.lost(&wanted.key, &wanted.uid) => Err(failure),
            opened = timeout_at(deadline, open.wait_for(all)) => match opened {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(self.not_open(&wanted.key)),
            },
        }
    }

    /// Rolls back: the port (later if the database is away), then the pair of interfaces.
    pub(super) async fn undo(&self, port: Uuid, host_end: String) {
        self.records.forget(&host_end);
        let which = Which::Rows(vec![port]);
        match self.parts.ports.reachable() {
            Ok(()) => {
                if self.parts.ports.detach(which.clone()).await.is_err() {
                    self.parts.ports.discard(which);
                }
            }
            Err(_) => self.parts.ports.discard(which),
        }
        let removed = self.beside(move || (pod_link::remove_pair(&host_end), host_end)).await;
        if let Ok((Err(error), interface)) = removed {
            tracing::warn!(interface, %error, "cannot be removed");
        }
    }

    fn not_told(&self, pod: &PodReference) -> Failure {
        let PodReference { namespace, name, .. } = pod;
        let waited = self.parts.patience;
        let message = format!("pod {namespace}/{name} has no network from ovnkube controller after {waited:?}");
        Failure::new(Code::TryAgainLater, message).with_details(self.parts.pods.why_nothing_comes(pod))
    }

    fn not_open(&self, pod: &PodKey) -> Failure {
        let message = format!("the host ports of pod {pod} do not lead to it within {:?}", self.parts.patience);
        let remedy = match &*self.parts.state.borrow() {
            Ok(()) => "look for the gateway's errors in the log of ovnkube node".to_owned(),
            Err(why) => why.clone(),
        };
        Failure::new(Code::TryAgainLater, message).with_details(remedy)
    }

    fn not_installed(&self, logical: &str) -> Failure {
        let waited = self.parts.patience;
        let message = format!("ovn-controller has not installed the flows of port {logical} within {waited:?}");
        let remedy = match &*self.parts.state.borrow() {
            Ok(()) => "look at the log of ovn-controller on this node, and whether ovn-northd runs".to_owned(),
            Err(why) => why.clone(),
        };
        Failure::new(Code::TryAgainLater, message).with_details(remedy)
    }
}

/// What the runtime is told of an interface that cannot be made.
pub(super) fn of_link(error: &LinkError) -> Failure {
    if error.namespace {
        let message = format!("{} cannot be entered", error.what);
        return Failure::new(Code::UnknownContainer, message).with_details(error.error.to_string());
    }
    Failure::new(Code::Io, format!("the kernel refused: {}", error.what)).with_details(error.error.to_string())
}
