//! Recreates ports of pods that somebody deleted or changed, while their sandboxes exist.
//!
//! ```text
//!  records ─┬─ port missing or changed, host end there ──▶ new port, Event PodPortRecreated
//!           ├─ host end gone, namespace there ──▶ cannot be repaired: Event PodNetworkLost, CHECK fails
//!           └─ pod or namespace gone ──▶ nothing: the runtime removes the sandbox
//! ```
//!
//! A repair has the attachment's turn, so neither ADD nor DEL is under way, and DEL ends it. After the turn came it looks
//! again: an attachment that was removed meanwhile has no record any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cni::{Code, Failure};
use futures_util::future::join_all;
use kubernetes::{Note, ObjectReference, Severity};
use tokio::time::{Instant, timeout_at};

use super::Inner;
use super::records::Record;
use crate::kernel::pod_link;
use crate::switch::rows::{FoundPort, pod_ports};

/// Changes that come together are looked at together: ports come and go with pods.
const SETTLING: Duration = Duration::from_millis(250);
/// How often everything is compared although no change was seen.
const RESYNC: Duration = Duration::from_secs(600);
/// The first pause after a failure; it doubles up to the longest.
const SOON: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// What is wrong with an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// The port is missing, or its external_ids are not those of the attachment.
    Port,
    /// The interface is gone.
    Interface,
}

/// Whether the switch has the port as it was wired, and has nothing against it.
fn is_whole(record: &Record, ports: &BTreeMap<&str, &FoundPort>) -> bool {
    let port = ports.get(record.host_end().as_str()).copied();
    port.is_some_and(|port| port.error.is_none() && Record::found(port).as_ref() == Some(record))
}

/// Whether another sandbox of the same pod has the logical port.
fn is_superseded(record: &Record, ports: &BTreeMap<&str, &FoundPort>) -> bool {
    let (logical, host_end) = (record.key().port_name(), record.host_end());
    ports.values().any(|port| port.logical == logical && port.name != host_end)
}

impl Inner {
    /// Never ends.
    pub(super) async fn keep_ports(self: Arc<Self>) {
        let mut listed = self.parts.pods.listed();
        if listed.wait_for(|listed| *listed).await.is_err() {
            return;
        }
        let mut changes = self.parts.ports.subscribe();
        let (mut lost, mut pause) = (BTreeSet::new(), SOON);
        loop {
            let mut status = self.parts.ports.status();
            if status.wait_for(|status| status.connected).await.is_err() {
                return;
            }
            let again = if self.repair(&mut lost).await {
                pause = SOON;
                RESYNC
            } else {
                let waited = pause;
                pause = (pause * 2).min(LONGEST);
                waited
            };
            if tokio::time::timeout(again, changes.next()).await.is_ok() {
                tokio::time::sleep(SETTLING).await;
            }
        }
    }

    /// Looks at all attachments; false if one has to be tried again. `lost` are those that were reported already.
    async fn repair(&self, lost: &mut BTreeSet<String>) -> bool {
        let records = self.records.all();
        let found = pod_ports(&self.parts.ports.snapshot(), None);
        let ports: BTreeMap<&str, &FoundPort> = found.iter().map(|port| (port.name.as_str(), port)).collect();
        let is_of_a_pod = |record: &Record| self.parts.pods.is_known(&record.key(), &record.uid);
        // ovs-vswitchd need not say that an interface is gone.
        let Ok(pairs) = self.pairs().await else { return false };
        let ends: BTreeSet<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        let is_whole = |record: &Record| is_whole(record, &ports) && ends.contains(record.host_end().as_str());
        let suspects =
            records.iter().filter(|record| !is_whole(record) && !is_superseded(record, &ports) && is_of_a_pod(record));
        let mut damaged = Vec::new();
        for record in suspects {
            match self.damage(record).await {
                Ok(damage) => damaged.extend(damage.map(|damage| (record, damage))),
                Err(failure) => {
                    tracing::warn!(pod = %record.key(), error = %failure, "cannot look at a damaged attachment; retrying");
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
                // The sandbox has ended; the runtime removes it.
                Damage::Interface => {}
            }
        }
        let all = join_all(recreating).await.into_iter().all(|done| done);
        self.metrics.lost.set(i64::try_from(gone.len()).unwrap_or(i64::MAX));
        *lost = gone;
        all
    }

    /// What is wrong with an attachment now, if anything.
    async fn damage(&self, record: &Record) -> Result<Option<Damage>, Failure> {
        let host_end = record.host_end();
        let exists = self.beside(move || pod_link::exists(&host_end)).await?;
        if !exists.map_err(|error| Failure::new(Code::Io, "netlink refused").with_details(error.to_string()))? {
            return Ok(Some(Damage::Interface));
        }
        let found = pod_ports(&self.parts.ports.snapshot(), None);
        let port = found.iter().find(|port| port.name == record.host_end()).and_then(Record::found);
        // What else ovs-vswitchd has against a port, another one would have as well.
        Ok((port.as_ref() != Some(record)).then_some(Damage::Port))
    }

    /// Whether an attachment is damaged, now that nobody else works on it.
    async fn is_still(&self, record: &Record, expected: Damage) -> bool {
        let found = pod_ports(&self.parts.ports.snapshot(), None);
        let ports: BTreeMap<&str, &FoundPort> = found.iter().map(|port| (port.name.as_str(), port)).collect();
        self.records.has(record)
            && !is_superseded(record, &ports)
            && self.damage(record).await.is_ok_and(|damage| damage == Some(expected))
    }

    /// Recreates a port; false if that has to be tried again.
    async fn recreate(&self, record: &Record) -> bool {
        let attachment = record.attachment();
        let mut turn = self.desk.turn(&attachment).await;
        if !self.is_still(record, Damage::Port).await {
            return true;
        }
        let host_end = record.host_end();
        let rows = (self.parts.ports.fresh(&record.sandbox), self.parts.ports.fresh(&host_end));
        let deadline = Instant::now() + self.parts.patience;
        let connecting = async {
            let announced = self.parts.ports.announce();
            let installed =
                self.parts.ports.attach(record.port(rows), announced).await.map_err(|error| error.to_string())?;
            match timeout_at(deadline, installed).await {
                Ok(Ok(installed)) => installed.map_err(|error| error.to_string()),
                Ok(Err(_)) => Err("the agent is ending".to_owned()),
                Err(_) => Err(format!("ovn-controller has not installed it within {:?}", self.parts.patience)),
            }
        };
        let connected = tokio::select! {
            connected = connecting => connected,
            () = turn.removal_wished() => {
                // DEL comes next, and must find what it has to remove.
                self.undo(rows.0, host_end).await;
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
                self.tell(record, "PodPortRecreated", &message);
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

    /// Reports a pod whose interface is gone while its sandbox is not; false if that is not so.
    async fn report_lost(&self, record: &Record) -> bool {
        let _turn = self.desk.turn(&record.attachment()).await;
        if !self.is_still(record, Damage::Interface).await {
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
        self.tell(record, "PodNetworkLost", &message);
        true
    }

    fn tell(&self, record: &Record, reason: &str, message: &str) {
        let object = ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: record.namespace.clone(),
            name: record.pod.clone(),
            uid: record.uid.clone(),
        };
        let note = Note { object, severity: Severity::Warning, reason: reason.into(), message: message.into() };
        self.parts.recorder.record(note);
    }
}

#[cfg(test)]
mod tests {
    use ovsdb::uuid::Uuid;

    use super::*;

    #[test]
    fn damage_is_told_from_what_is_as_it_was_wired() {
        let text = |text: &str| text.to_owned();
        let found = FoundPort {
            port_row: Uuid::from_bytes([0; 16]),
            name: crate::cni::wiring::host_end(&cni::Attachment { container: text("s-1"), interface: text("eth0") }),
            logical: text("ns_p"),
            uid: text("u-1"),
            sandbox: text("s-1"),
            inside: Some(text("eth0")),
            namespace: Some(text("/run/netns/x")),
            mac: Some(text("0a:58:0a:82:00:05")),
            addresses: Some(text("10.130.0.5/23")),
            installed: false,
            error: None,
        };
        let record = Record::found(&found).unwrap();
        let whole = |port: &FoundPort| is_whole(&record, &BTreeMap::from([(&*port.name, port)]));
        assert!(whole(&found) && !is_whole(&record, &BTreeMap::new()));
        assert!(!whole(&FoundPort { addresses: None, ..found.clone() }));
        assert!(!whole(&FoundPort { error: Some(text("could not open network device")), ..found.clone() }));
        let newer = FoundPort { name: text("pod0"), sandbox: text("s-2"), ..found.clone() };
        let superseded = |port: &FoundPort| is_superseded(&record, &BTreeMap::from([(&*port.name, port)]));
        assert_eq!((superseded(&newer), superseded(&found)), (true, false));
    }
}
