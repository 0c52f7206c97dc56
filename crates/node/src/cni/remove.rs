//! DEL and GC, and what a former life left: ports and interfaces that nobody uses are removed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cni::{Attachment, Code, Failure};
use topology::identity::PodKey;

use super::records::Record;
use super::{Inner, of_port, wiring};
use crate::kernel::pod_link;
use crate::switch::ports::Which;
use crate::switch::rows::{FoundPort, pod_ports};

impl Inner {
    /// DEL. What is gone already is no error: neither the API nor the namespace is needed.
    pub(super) async fn delete(&self, attachment: &Attachment) -> Result<(), Failure> {
        let turn = self.desk.turn_to_remove(attachment).await;
        // First: from now on nobody recreates its port.
        self.records.forget(&wiring::host_end(attachment));
        let Attachment { container, interface } = attachment;
        let mut ends = vec![wiring::host_end(attachment)];
        let ports = pod_ports(&self.parts.ports.snapshot(), Some(container));
        ends.extend(ports.into_iter().filter(|port| is_of(port, attachment)).map(|port| port.name));
        ends.dedup();
        let which = Which::Sandbox { sandbox: container.clone(), interface: interface.clone() };
        let detached = self.parts.ports.detach(which).await;
        // Also without the database: the pod's traffic ends with its interface.
        let removed = self.remove_pairs(ends).await;
        drop(turn);
        let ports = detached.map_err(|error| of_port(&error, Code::TryAgainLater))?;
        let pairs = removed?;
        if ports + pairs > 0 {
            tracing::info!(sandbox = container, interface, ports, pairs, "removed");
        } else {
            // Runtimes repeat DEL to be sure.
            tracing::debug!(sandbox = container, interface, "DEL of a sandbox that is removed already");
        }
        Ok(())
    }

    /// GC: only what the runtime names stays.
    pub(super) async fn collect_garbage(&self, in_use: &[Attachment]) -> Result<(), Failure> {
        let ports = pod_ports(&self.parts.ports.snapshot(), None);
        let unused = ports.into_iter().filter(|port| !in_use.iter().any(|one| is_of(port, one)));
        let kept: HashSet<String> = in_use.iter().map(wiring::host_end).collect();
        self.remove_ports(unused.collect(), kept).await
    }

    /// What a former life of the agent or of the host left: ports whose interfaces are gone, interfaces without ports, and,
    /// as soon as the API has told of all pods, what is of none of them.
    pub(super) async fn remove_stale(self: Arc<Self>) {
        let mut listed = self.parts.pods.listed();
        let mut again = false;
        loop {
            match self.remove_stale_now(again).await {
                Ok(()) if again => return,
                Ok(()) => {
                    if listed.wait_for(|listed| *listed).await.is_err() {
                        return;
                    }
                    again = true;
                }
                Err(failure) => {
                    tracing::warn!(%failure, "what a former life left is not removed yet");
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            }
        }
    }

    async fn remove_stale_now(&self, by_pods: bool) -> Result<(), Failure> {
        let mut status = self.parts.ports.status();
        if status.wait_for(|status| status.connected).await.is_err() {
            return Ok(());
        }
        let pairs = self.pairs().await?;
        let there: HashSet<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        let ports = pod_ports(&self.parts.ports.snapshot(), None);
        // What another implementation made is left to its own DEL.
        let (stale, live): (Vec<FoundPort>, Vec<FoundPort>) = ports.into_iter().partition(|port| {
            let unknown = || by_pods && !self.is_of_a_pod(port);
            port.inside.is_some() && (!there.contains(port.name.as_str()) || unknown())
        });
        // Those of agents that kept no records.
        let busy: HashSet<String> = self.desk.busy().iter().map(wiring::host_end).collect();
        let unknown = live.iter().filter(|port| !busy.contains(&port.name) && !self.records.has_end(&port.name));
        for record in unknown.filter_map(Record::found) {
            self.records.keep(record);
        }
        // A sandbox that exists keeps its interface: its port is recreated, or its loss is reported.
        let is_live = |record: &Record| {
            let known = !by_pods || self.parts.pods.is_known(&record.key(), &record.uid);
            known && pod_link::is_namespace(record.netns.as_ref())
        };
        let records = self.records.all().into_iter().filter(|record| is_live(record)).map(|record| record.host_end());
        let kept = live.iter().map(|port| port.name.clone()).chain(records).collect();
        self.remove_ports(stale, kept).await
    }

    fn is_of_a_pod(&self, port: &FoundPort) -> bool {
        let names = port.logical.split_once('_');
        names.is_some_and(|(namespace, name)| self.parts.pods.is_known(&PodKey::new(namespace, name), &port.uid))
    }

    /// Removes ports with their interfaces, and interfaces of ours that are not to be kept. What a request is about is left
    /// to it.
    async fn remove_ports(&self, mut ports: Vec<FoundPort>, mut kept: HashSet<String>) -> Result<(), Failure> {
        // First: from now on nobody recreates their ports.
        for end in self.records.all().iter().map(|record| record.host_end()).filter(|end| !kept.contains(end)) {
            self.records.forget(&end);
        }
        kept.extend(self.desk.busy().iter().map(wiring::host_end));
        ports.retain(|port| !kept.contains(&port.name));
        let rows: Vec<_> = ports.iter().map(|port| port.port_row).collect();
        for port in &ports {
            tracing::info!(port = port.logical, sandbox = port.sandbox, interface = port.name, "of nobody: removed");
        }
        if !rows.is_empty() {
            self.parts.ports.detach(Which::Rows(rows)).await.map_err(|error| of_port(&error, Code::TryAgainLater))?;
        }
        let mut ends: Vec<String> = ports.into_iter().map(|port| port.name).collect();
        let ours = self.pairs().await?.into_iter().filter(|(name, alias)| wiring::is_host_end(name, alias));
        // Requests may have come meanwhile.
        kept.extend(self.desk.busy().iter().map(wiring::host_end));
        ends.extend(ours.map(|(name, _)| name).filter(|name| !kept.contains(name)));
        ends.sort_unstable();
        ends.dedup();
        self.remove_pairs(ends).await.map(drop)
    }

    pub(super) async fn pairs(&self) -> Result<Vec<(String, String)>, Failure> {
        let of_kernel = |error: std::io::Error| {
            Failure::new(Code::Io, "the host's interfaces cannot be listed").with_details(error.to_string())
        };
        self.beside(pod_link::pairs).await?.map_err(of_kernel)
    }

    /// Removes pairs by their ends on the host; how many there were.
    async fn remove_pairs(&self, ends: Vec<String>) -> Result<usize, Failure> {
        if ends.is_empty() {
            return Ok(0);
        }
        let removing = move || {
            let mut count = 0;
            for end in ends {
                match pod_link::remove_pair(&end) {
                    Ok(there) => count += usize::from(there),
                    Err(error) => return Err((end, error)),
                }
            }
            Ok(count)
        };
        self.beside(removing).await?.map_err(|(end, error)| {
            Failure::new(Code::Io, format!("interface {end} cannot be removed")).with_details(error.to_string())
        })
    }
}

/// Whether a port is of an attachment; another implementation does not name the interface.
fn is_of(port: &FoundPort, attachment: &Attachment) -> bool {
    port.sandbox == attachment.container && port.inside.as_ref().is_none_or(|inside| *inside == attachment.interface)
}
