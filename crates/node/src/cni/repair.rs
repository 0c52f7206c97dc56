//! Recreates ports of running pods that another client deleted or changed.
//!
//! ```text
//!  records ─┬─ port missing or changed, host end there ──▶ new port, Event PodPortRecreated
//!           ├─ host end gone, namespace there ──▶ cannot be repaired: Event PodNetworkLost, CHECK fails
//!           └─ pod or namespace gone ──▶ nothing: the runtime removes the sandbox
//! ```
//!
//! A repair holds the attachment lock, so no ADD or DEL runs, and a DEL cancels it. With the lock it checks again: an attachment
//! that was removed meanwhile has no record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Retries};
use cni::{Code, Failure};
use futures_util::future::join_all;
use kubernetes::{Note, ObjectReference, Severity};
use tokio::time::{Instant, timeout_at};

use super::Inner;
use super::records::Record;
use crate::kernel::pod_link;
use crate::switch::rows::{FoundPort, pod_ports};

/// Changes within this time are handled together: ports change with every pod.
const BATCH_DELAY: Duration = Duration::from_millis(250);
/// Interval of a full comparison although no change arrived.
const RESYNC: Duration = Duration::from_secs(600);
/// Delay after a failure.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// What is wrong with an attachment, and whether the agent can repair it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// The port is missing, or its `external_ids` differ from the record: it can be recreated.
    Port,
    /// The interface is gone: only a new sandbox helps.
    Interface,
}

/// True if the port equals its record and ovs-vswitchd reports no error.
fn is_intact(record: &Record, ports: &BTreeMap<&str, &FoundPort>) -> bool {
    let port = ports.get(record.host_end().as_str()).copied();
    port.is_some_and(|port| port.error.is_none() && Record::from_port(port).as_ref() == Some(record))
}

/// True if a port of another sandbox has the same logical port.
fn is_superseded(record: &Record, ports: &BTreeMap<&str, &FoundPort>) -> bool {
    let (logical, host_end) = (record.key().port_name(), record.host_end());
    ports.values().any(|port| port.logical_port == logical && port.name != host_end)
}

impl Inner {
    /// Never returns.
    pub(super) async fn repair_ports(self: Arc<Self>) {
        let mut listed = self.deps.pods.listed();
        if listed.wait_for(|listed| *listed).await.is_err() {
            return;
        }
        let mut changes = self.deps.ports.subscribe();
        let (mut lost, mut retries) = (BTreeSet::new(), Retries::without_jitter(BACKOFF));
        loop {
            let mut status = self.deps.ports.status();
            if status.wait_for(|status| status.connected).await.is_err() {
                return;
            }
            let again = if self.repair(&mut lost).await {
                retries.reset();
                RESYNC
            } else {
                retries.next_delay()
            };
            if tokio::time::timeout(again, changes.next()).await.is_ok() {
                tokio::time::sleep(BATCH_DELAY).await;
            }
        }
    }

    /// Checks all attachments; false if one must be retried. `lost`: host ends whose loss was reported already.
    async fn repair(&self, lost: &mut BTreeSet<String>) -> bool {
        let records = self.records.all();
        let found = pod_ports(&self.deps.ports.snapshot(), None);
        let ports: BTreeMap<&str, &FoundPort> = found.iter().map(|port| (port.name.as_str(), port)).collect();
        let has_known_pod = |record: &Record| self.deps.pods.is_known(&record.key(), &record.uid);
        // ovs-vswitchd does not always report that an interface is gone.
        let Ok(pairs) = self.pairs().await else { return false };
        let ends: BTreeSet<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        let is_intact = |record: &Record| is_intact(record, &ports) && ends.contains(record.host_end().as_str());
        let suspects = records
            .iter()
            .filter(|record| !is_intact(record) && !is_superseded(record, &ports) && has_known_pod(record));
        let mut damaged = Vec::new();
        for record in suspects {
            match self.damage(record).await {
                Ok(damage) => damaged.extend(damage.map(|damage| (record, damage))),
                Err(failure) => {
                    tracing::warn!(pod = %record.key(), error = %failure, "cannot check a damaged attachment; retrying");
                    return false;
                }
            }
        }
        let mut gone = BTreeSet::new();
        let mut recreating = Vec::new();
        for (record, damage) in damaged {
            match damage {
                Damage::Port => recreating.push(self.recreate(record)),
                Damage::Interface if pod_link::is_namespace(record.netns.as_ref()) => {
                    if lost.contains(&record.host_end()) || self.report_lost(record).await {
                        gone.insert(record.host_end());
                    }
                }
                // The sandbox is gone; the runtime sends DEL.
                Damage::Interface => {}
            }
        }
        let all = join_all(recreating).await.into_iter().all(|done| done);
        self.metrics.lost.set(i64::try_from(gone.len()).unwrap_or(i64::MAX));
        *lost = gone;
        all
    }

    /// The current damage of an attachment, if any.
    async fn damage(&self, record: &Record) -> Result<Option<Damage>, Failure> {
        let host_end = record.host_end();
        let exists = self.run_blocking(move || pod_link::exists(&host_end)).await?;
        if !exists.map_err(|error| {
            Failure::new(Code::Io, "cannot read the host's interfaces").with_details(error.to_string())
        })? {
            return Ok(Some(Damage::Interface));
        }
        let found = pod_ports(&self.deps.ports.snapshot(), None);
        let port = found.iter().find(|port| port.name == record.host_end()).and_then(Record::from_port);
        // Recreating a port would not cure other errors of ovs-vswitchd.
        Ok((port.as_ref() != Some(record)).then_some(Damage::Port))
    }

    /// Checks again with the lock held.
    async fn is_still_damaged(&self, record: &Record, expected: Damage) -> bool {
        let found = pod_ports(&self.deps.ports.snapshot(), None);
        let ports: BTreeMap<&str, &FoundPort> = found.iter().map(|port| (port.name.as_str(), port)).collect();
        self.records.has(record)
            && !is_superseded(record, &ports)
            && self.damage(record).await.is_ok_and(|damage| damage == Some(expected))
    }

    /// Recreates a port; false if it must be retried.
    async fn recreate(&self, record: &Record) -> bool {
        let attachment = record.attachment();
        let mut lock = self.locks.lock(&attachment).await;
        if !self.is_still_damaged(record, Damage::Port).await {
            return true;
        }
        let host_end = record.host_end();
        let rows = (self.deps.ports.new_uuid(&record.sandbox), self.deps.ports.new_uuid(&host_end));
        let deadline = Instant::now() + self.deps.add_timeout;
        let connecting = async {
            let pending = self.deps.ports.announce();
            let installed =
                self.deps.ports.attach(record.port(rows), pending).await.map_err(|error| error.to_string())?;
            match timeout_at(deadline, installed).await {
                Ok(Ok(installed)) => installed.map_err(|error| error.to_string()),
                Ok(Err(_)) => Err("the agent is shutting down".to_owned()),
                Err(_) => Err(format!("ovn-controller has not installed it within {:?}", self.deps.add_timeout)),
            }
        };
        let connected = tokio::select! {
            connected = connecting => connected,
            () = lock.delete_requested() => {
                // DEL runs next, and must find what it has to remove.
                self.roll_back(rows.0, host_end).await;
                return true;
            }
        };
        let (pod, sandbox) = (record.key().to_string(), &record.sandbox);
        match connected {
            Ok(()) => {
                tracing::warn!(
                    pod,
                    sandbox,
                    port = host_end,
                    "OVS port of a running pod was deleted or changed; recreated"
                );
                self.metrics.ports_recreated.inc();
                let message =
                    format!("port {host_end} of br-int was deleted or changed on the node and has been recreated");
                self.record_event(record, "PodPortRecreated", &message);
                true
            }
            Err(error) => {
                tracing::warn!(
                    pod,
                    sandbox,
                    port = host_end,
                    error,
                    "cannot recreate the OVS port of a running pod; retrying"
                );
                false
            }
        }
    }

    /// Reports a running pod whose interface is gone; false if it is not gone after all.
    async fn report_lost(&self, record: &Record) -> bool {
        let _lock = self.locks.lock(&record.attachment()).await;
        if !self.is_still_damaged(record, Damage::Interface).await {
            return false;
        }
        let host_end = record.host_end();
        tracing::warn!(
            pod = %record.key(), sandbox = record.sandbox, interface = host_end,
            "interface of a running pod was deleted; the pod has no network until it is deleted and created again"
        );
        let message = format!(
            "interface {} of the pod ({host_end} on the node) was deleted: the pod has no network; delete the pod so that it is \
             created again",
            record.interface
        );
        self.record_event(record, "PodNetworkLost", &message);
        true
    }

    fn record_event(&self, record: &Record, reason: &str, message: &str) {
        let object = ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: record.namespace.clone(),
            name: record.pod.clone(),
            uid: record.uid.clone(),
        };
        let note = Note { object, severity: Severity::Warning, reason: reason.into(), message: message.into() };
        self.deps.recorder.record(note);
    }
}

#[cfg(test)]
mod tests {
    use ovsdb::uuid::Uuid;

    use super::*;

    #[test]
    fn a_port_that_differs_from_its_record_is_damaged() {
        let text = |text: &str| text.to_owned();
        let found = FoundPort {
            port_row: Uuid::from_bytes([0; 16]),
            name: crate::cni::wiring::host_end(&cni::Attachment { container: text("s-1"), interface: text("eth0") }),
            logical_port: text("ns_p"),
            uid: text("u-1"),
            sandbox: text("s-1"),
            pod_interface: Some(text("eth0")),
            netns: Some(text("/run/netns/x")),
            mac: Some(text("0a:58:0a:82:00:05")),
            addresses: Some(text("10.130.0.5/23")),
            installed: false,
            error: None,
        };
        let record = Record::from_port(&found).unwrap();
        let intact = |port: &FoundPort| is_intact(&record, &BTreeMap::from([(&*port.name, port)]));
        assert!(intact(&found) && !is_intact(&record, &BTreeMap::new()));
        assert!(!intact(&FoundPort { addresses: None, ..found.clone() }));
        assert!(!intact(&FoundPort { error: Some(text("could not open network device")), ..found.clone() }));
        let newer = FoundPort { name: text("pod0"), sandbox: text("s-2"), ..found.clone() };
        let superseded = |port: &FoundPort| is_superseded(&record, &BTreeMap::from([(&*port.name, port)]));
        assert_eq!((superseded(&newer), superseded(&found)), (true, false));
    }
}
