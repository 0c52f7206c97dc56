//! Records of connected attachments, on disk: a port that another client deletes is recreated from its record, also after a
//! restart of the agent.
//!
//! The Port row says everything about a port, but is gone with it. So each attachment has a small file in the socket's directory,
//! which ADD writes last and DEL removes first: no port is recreated for a sandbox that is being removed. The directory is on
//! `/run`, which a reboot empties, as it ends all sandboxes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cni::Attachment;
use objects::PodKey;
use ovsdb::uuid::Uuid;
use serde::{Deserialize, Serialize};

use super::wiring;
use crate::switch::rows::{FoundPort, PodPort};

/// Name below the socket's directory.
const DIRECTORY: &str = "attachments";

/// A connected attachment of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) sandbox: String,
    /// Such as `eth0`.
    pub(super) interface: String,
    /// Path of the network namespace.
    pub(super) netns: String,
    /// Kubernetes namespace of the pod.
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: String,
    mac: String,
    /// Separated by commas.
    addresses: String,
}

impl Record {
    /// The record of a port that ADD created.
    pub(super) fn new(key: &PodKey, port: &PodPort) -> Self {
        Self {
            sandbox: port.sandbox.clone(),
            interface: port.pod_interface.clone(),
            netns: port.netns.clone(),
            namespace: key.namespace.to_string(),
            pod: key.name.to_string(),
            uid: port.uid.clone(),
            mac: port.mac.clone(),
            addresses: port.addresses.clone(),
        }
    }

    /// The record of an existing port, for ports of an agent without records; None for one of OVN-Kubernetes (Go).
    pub(super) fn from_port(port: &FoundPort) -> Option<Self> {
        let (namespace, pod) = port.logical_port.split_once('_')?;
        Some(Self {
            sandbox: port.sandbox.clone(),
            interface: port.pod_interface.clone()?,
            netns: port.netns.clone()?,
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: port.uid.clone(),
            mac: port.mac.clone()?,
            addresses: port.addresses.clone()?,
        })
    }

    pub(super) fn key(&self) -> PodKey {
        PodKey::new(&self.namespace, &self.pod)
    }

    pub(super) fn attachment(&self) -> Attachment {
        Attachment { container: self.sandbox.clone(), interface: self.interface.clone() }
    }

    /// Device on the host, which is also the key of the record.
    pub(super) fn host_end(&self) -> String {
        wiring::host_end(&self.attachment())
    }

    /// The desired port, with new row UUIDs.
    pub(super) fn port(&self, rows: (Uuid, Uuid)) -> PodPort {
        let (port_row, interface_row) = rows;
        PodPort {
            port_row,
            interface_row,
            name: self.host_end(),
            logical_port: self.key().port_name(),
            uid: self.uid.clone(),
            mac: self.mac.clone(),
            addresses: self.addresses.clone(),
            sandbox: self.sandbox.clone(),
            pod_interface: self.interface.clone(),
            netns: self.netns.clone(),
        }
    }
}

/// Records of all attachments, by host end.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
    known: Mutex<BTreeMap<String, Arc<Record>>>,
}

impl Records {
    /// Reads the records of an earlier agent. Unreadable ones are logged and skipped.
    pub(super) fn load(parent: &Path) -> Self {
        let directory = parent.join(DIRECTORY);
        let known = read(&directory).unwrap_or_else(|error| {
            tracing::warn!(directory = %directory.display(), %error, "cannot read the records of an earlier agent; deleted ports of running pods are not recreated");
            BTreeMap::new()
        });
        Self { directory, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Record>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all(&self) -> Vec<Arc<Record>> {
        self.known().values().cloned().collect()
    }

    /// True if this is still the record of its attachment.
    pub(super) fn has(&self, record: &Record) -> bool {
        self.known().get(&record.host_end()).is_some_and(|known| **known == *record)
    }

    pub(super) fn has_host_end(&self, host_end: &str) -> bool {
        self.known().contains_key(host_end)
    }

    /// Adds a record, and removes those of older sandboxes of the same pod. If the file cannot be written, a restarted agent finds
    /// the attachment in OVSDB.
    pub(super) fn insert(&self, record: Record) {
        let host_end = record.host_end();
        let older: Vec<String> = {
            let known = self.known();
            let same =
                known.iter().filter(|(_, other)| (&other.namespace, &other.pod) == (&record.namespace, &record.pod));
            same.map(|(end, _)| end.clone()).filter(|end| *end != host_end).collect()
        };
        for end in older {
            self.remove(&end);
        }
        if let Err(error) = self.write(&host_end, &record) {
            let directory = self.directory.display();
            tracing::warn!(%directory, pod = %record.key(), %error, "attachment not recorded; its port is not recreated after an agent restart");
        }
        self.known().insert(host_end, Arc::new(record));
    }

    fn write(&self, host_end: &str, record: &Record) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&self.directory)?;
        let new = self.directory.join(format!(".{host_end}"));
        fs::write(&new, serde_json::to_vec(record).map_err(io::Error::other)?)?;
        fs::rename(new, self.directory.join(host_end))
    }

    /// Removes a record; false if there was none.
    pub(super) fn remove(&self, host_end: &str) -> bool {
        let was_known = self.known().remove(host_end).is_some();
        if was_known
            && let Err(error) = fs::remove_file(self.directory.join(host_end))
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(directory = %self.directory.display(), host_end, %error, "cannot remove the record of an attachment; a restarted agent reads it again");
        }
        was_known
    }
}

fn read(directory: &Path) -> io::Result<BTreeMap<String, Arc<Record>>> {
    let mut known = BTreeMap::new();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(known),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let record: Option<Record> = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let named = |record: &Record| path.file_name().is_some_and(|name| *name == *record.host_end());
        match record.filter(named) {
            Some(record) => drop(known.insert(record.host_end(), Arc::new(record))),
            // Half-written by an agent that was killed, or not ours.
            None => {
                tracing::warn!(file = %path.display(), "removing an invalid record of an attachment");
                fs::remove_file(&path)?;
            }
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sandbox: &str, pod: &str) -> Record {
        let text = |text: &str| text.to_owned();
        Record {
            sandbox: text(sandbox),
            interface: text("eth0"),
            netns: text("/run/netns/x"),
            namespace: text("ns"),
            pod: text(pod),
            uid: text("u-1"),
            mac: text("0a:58:0a:82:00:05"),
            addresses: text("10.130.0.5/23"),
        }
    }

    #[test]
    fn records_survive_a_restart_and_a_pod_has_only_its_newest() {
        let parent = std::env::temp_dir().join(format!("ovnkube-records-{}", std::process::id()));
        let records = Records::load(&parent);
        assert!(records.all().is_empty());
        let (old, new, other) = (record("old", "p"), record("new", "p"), record("other", "q"));
        for record in [&old, &other, &new] {
            records.insert(record.clone());
        }
        assert!(!records.has(&old) && records.has(&new));
        fs::write(parent.join(DIRECTORY).join("podbroken"), "{").unwrap();
        let again = Records::load(&parent);
        assert_eq!(again.all(), records.all());
        assert!(!parent.join(DIRECTORY).join("podbroken").exists());
        assert!(again.remove(&new.host_end()) && !again.remove(&new.host_end()));
        assert_eq!(Records::load(&parent).all(), [Arc::new(other)]);
        fs::remove_dir_all(parent).unwrap();
    }
}
