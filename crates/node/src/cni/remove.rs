//! DEL, GC, and the removal of orphaned ports and interfaces at the start of the agent.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cni::{Attachment, Code, Failure};
use objects::PodKey;

use super::records::Record;
use super::{Inner, port_failure, wiring};
use crate::kernel::pod_link;
use crate::switch::ports::PortSelector;
use crate::switch::rows::{FoundPort, pod_ports};

impl Inner {
    /// DEL. It succeeds if nothing is left to remove, and needs neither the API nor the network namespace.
    pub(super) async fn delete(&self, attachment: &Attachment) -> Result<(), Failure> {
        let lock = self.locks.lock_for_delete(attachment).await;
        // First, so that the port is not recreated.
        self.records.remove(&wiring::host_end(attachment));
        let Attachment { container, interface } = attachment;
        let mut ends = vec![wiring::host_end(attachment)];
        let ports = pod_ports(&self.deps.ports.snapshot(), Some(container));
        ends.extend(ports.into_iter().filter(|port| belongs_to(port, attachment)).map(|port| port.name));
        ends.dedup();
        let selector = PortSelector::Sandbox { sandbox: container.clone(), interface: interface.clone() };
        let detached = self.deps.ports.detach(selector).await;
        // Even if OVSDB is down: traffic ends with the interface.
        let removed = self.remove_pairs(ends).await;
        drop(lock);
        let ports = detached.map_err(|error| port_failure(&error, Code::TryAgainLater))?;
        let pairs = removed?;
        if ports + pairs > 0 {
            tracing::info!(sandbox = container, interface, ports, pairs, "removed attachment");
        } else {
            // Runtimes repeat DEL.
            tracing::debug!(sandbox = container, interface, "DEL: nothing to remove");
        }
        Ok(())
    }

    /// GC: removes all attachments that the runtime does not name.
    pub(super) async fn collect_garbage(&self, valid: &[Attachment]) -> Result<(), Failure> {
        let ports = pod_ports(&self.deps.ports.snapshot(), None);
        let unused = ports.into_iter().filter(|port| !valid.iter().any(|one| belongs_to(port, one)));
        let kept: HashSet<String> = valid.iter().map(wiring::host_end).collect();
        self.remove_ports(unused.collect(), kept).await
    }

    /// Removes what an earlier run of the agent or of the host left: ports without an interface, interfaces without a port, and
    /// once all pods are listed, ports of pods that no longer exist. Retries until done.
    pub(super) async fn remove_orphaned(self: Arc<Self>) {
        let mut listed = self.deps.pods.listed();
        let mut pods_listed = false;
        loop {
            match self.remove_orphaned_now(pods_listed).await {
                Ok(()) if pods_listed => return,
                Ok(()) => {
                    if listed.wait_for(|listed| *listed).await.is_err() {
                        return;
                    }
                    pods_listed = true;
                }
                Err(failure) => {
                    tracing::warn!(error = %failure, "cleanup of orphaned ports failed; retrying in 5s");
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            }
        }
    }

    async fn remove_orphaned_now(&self, by_pods: bool) -> Result<(), Failure> {
        let mut status = self.deps.ports.status();
        if status.wait_for(|status| status.connected).await.is_err() {
            return Ok(());
        }
        let pairs = self.pairs().await?;
        let there: HashSet<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        let ports = pod_ports(&self.deps.ports.snapshot(), None);
        // Ports of OVN-Kubernetes (Go) are left to their own DEL.
        let (orphaned, live): (Vec<FoundPort>, Vec<FoundPort>) = ports.into_iter().partition(|port| {
            let unknown = || by_pods && !self.has_known_pod(port);
            port.pod_interface.is_some() && (!there.contains(port.name.as_str()) || unknown())
        });
        // Ports of agents that wrote no records.
        let busy: HashSet<String> = self.locks.busy().iter().map(wiring::host_end).collect();
        let unknown = live.iter().filter(|port| !busy.contains(&port.name) && !self.records.has_host_end(&port.name));
        for record in unknown.filter_map(Record::from_port) {
            self.records.insert(record);
        }
        // A sandbox that exists keeps its interface: its port is recreated, or its loss reported.
        let is_live = |record: &Record| {
            let known = !by_pods || self.deps.pods.is_known(&record.key(), &record.uid);
            known && pod_link::is_namespace(record.netns.as_ref())
        };
        let records = self.records.all().into_iter().filter(|record| is_live(record)).map(|record| record.host_end());
        let kept = live.iter().map(|port| port.name.clone()).chain(records).collect();
        self.remove_ports(orphaned, kept).await
    }

    fn has_known_pod(&self, port: &FoundPort) -> bool {
        let names = port.logical_port.split_once('_');
        names.is_some_and(|(namespace, name)| self.deps.pods.is_known(&PodKey::new(namespace, name), &port.uid))
    }

    /// Removes ports with their interfaces, and all our interfaces that are not in `kept`. Attachments with a running request are
    /// left alone.
    async fn remove_ports(&self, mut ports: Vec<FoundPort>, mut kept: HashSet<String>) -> Result<(), Failure> {
        // First, so that the ports are not recreated.
        for end in self.records.all().iter().map(|record| record.host_end()).filter(|end| !kept.contains(end)) {
            self.records.remove(&end);
        }
        kept.extend(self.locks.busy().iter().map(wiring::host_end));
        ports.retain(|port| !kept.contains(&port.name));
        let rows: Vec<_> = ports.iter().map(|port| port.port_row).collect();
        for port in &ports {
            tracing::info!(
                port = port.logical_port,
                sandbox = port.sandbox,
                interface = port.name,
                "removing orphaned OVS port"
            );
        }
        if !rows.is_empty() {
            self.deps
                .ports
                .detach(PortSelector::Rows(rows))
                .await
                .map_err(|error| port_failure(&error, Code::TryAgainLater))?;
        }
        let mut ends: Vec<String> = ports.into_iter().map(|port| port.name).collect();
        let ours = self.pairs().await?.into_iter().filter(|(name, alias)| wiring::is_host_end(name, alias));
        // Requests may have started meanwhile.
        kept.extend(self.locks.busy().iter().map(wiring::host_end));
        ends.extend(ours.map(|(name, _)| name).filter(|name| !kept.contains(name)));
        ends.sort_unstable();
        ends.dedup();
        self.remove_pairs(ends).await.map(drop)
    }

    pub(super) async fn pairs(&self) -> Result<Vec<(String, String)>, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(Code::Io, "cannot list the host's interfaces").with_details(error.to_string())
        };
        self.run_blocking(pod_link::pairs).await?.map_err(failed)
    }

    /// Removes veth pairs by their host ends; returns how many there were.
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
        self.run_blocking(removing).await?.map_err(|(end, error)| {
            Failure::new(Code::Io, format!("cannot remove interface {end}")).with_details(error.to_string())
        })
    }
}

/// True if a port belongs to an attachment. Ports of OVN-Kubernetes (Go) do not name the interface.
fn belongs_to(port: &FoundPort, attachment: &Attachment) -> bool {
    port.sandbox == attachment.container
        && port.pod_interface.as_ref().is_none_or(|found| *found == attachment.interface)
}
