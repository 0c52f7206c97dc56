//! Wired attachments, kept on disk: from them a port that somebody deleted is recreated, also by a restarted agent.
//!
//! The switch's own row says everything about a port, and is gone with it. So each attachment has a small file beside the
//! server's socket, written when ADD succeeds and removed first when DEL begins: no port is ever recreated for a sandbox that
//! is being removed. The folder is on `/run`, which a reboot empties as it ends all sandboxes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cni::Attachment;
use ovsdb::uuid::Uuid;
use serde::{Deserialize, Serialize};
use topology::identity::PodKey;

use super::wiring;
use crate::switch::rows::{FoundPort, PodPort};

/// The folder's name.
const FOLDER: &str = "attachments";

/// A pod's attachment, as it was wired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The sandbox.
    pub(super) sandbox: String,
    /// The interface in it.
    pub(super) interface: String,
    /// The path of its network namespace.
    pub(super) netns: String,
    /// The pod's namespace.
    pub(super) namespace: String,
    /// The pod's name.
    pub(super) pod: String,
    /// The pod's UID.
    pub(super) uid: String,
    /// Its MAC.
    mac: String,
    /// Its addresses, with commas.
    addresses: String,
}

impl Record {
    /// What was written to the switch for a pod.
    pub(super) fn of(key: &PodKey, port: &PodPort) -> Self {
        Self {
            sandbox: port.sandbox.clone(),
            interface: port.inside.clone(),
            netns: port.namespace.clone(),
            namespace: key.namespace.to_string(),
            pod: key.name.to_string(),
            uid: port.uid.clone(),
            mac: port.mac.clone(),
            addresses: port.addresses.clone(),
        }
    }

    /// What the switch says of a port that an agent without records wired; none if another implementation did.
    pub(super) fn found(port: &FoundPort) -> Option<Self> {
        let (namespace, pod) = port.logical.split_once('_')?;
        Some(Self {
            sandbox: port.sandbox.clone(),
            interface: port.inside.clone()?,
            netns: port.namespace.clone()?,
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

    /// The end on the host, by which the record is known.
    pub(super) fn host_end(&self) -> String {
        wiring::host_end(&self.attachment())
    }

    /// The port that the attachment should have.
    pub(super) fn port(&self, rows: (Uuid, Uuid)) -> PodPort {
        let (port_row, interface_row) = rows;
        PodPort {
            port_row,
            interface_row,
            name: self.host_end(),
            logical: self.key().port_name(),
            uid: self.uid.clone(),
            mac: self.mac.clone(),
            addresses: self.addresses.clone(),
            sandbox: self.sandbox.clone(),
            inside: self.interface.clone(),
            namespace: self.netns.clone(),
        }
    }
}

/// All wired attachments, by their ends on the host.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
    known: Mutex<BTreeMap<String, Arc<Record>>>,
}

impl Records {
    /// Reads what an earlier agent left. What cannot be read is no record: it is logged, and CHECK still works.
    pub(super) fn load(above: &Path) -> Self {
        let folder = above.join(FOLDER);
        let known = read(&folder).unwrap_or_else(|error| {
            tracing::warn!(folder = %folder.display(), %error, "cannot read the attachments of an earlier agent");
            BTreeMap::new()
        });
        Self { folder, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Record>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<Record>> {
        self.known().values().cloned().collect()
    }

    /// Whether this is still the record of its attachment.
    pub(super) fn has(&self, record: &Record) -> bool {
        self.known().get(&record.host_end()).is_some_and(|known| **known == *record)
    }

    /// Whether there is one of this end on the host.
    pub(super) fn has_end(&self, host_end: &str) -> bool {
        self.known().contains_key(host_end)
    }

    /// Keeps a record, instead of those of older sandboxes of the same pod. Without its file the attachment works as well; a
    /// restarted agent finds it in the switch.
    pub(super) fn keep(&self, record: Record) {
        let host_end = record.host_end();
        let older: Vec<String> = {
            let known = self.known();
            let same =
                known.iter().filter(|(_, other)| (&other.namespace, &other.pod) == (&record.namespace, &record.pod));
            same.map(|(end, _)| end.clone()).filter(|end| *end != host_end).collect()
        };
        for end in older {
            self.forget(&end);
        }
        if let Err(error) = self.write(&host_end, &record) {
            let folder = self.folder.display();
            tracing::warn!(%folder, pod = %record.key(), %error, "attachment not recorded; its port is not recreated after an agent restart");
        }
        self.known().insert(host_end, Arc::new(record));
    }

    fn write(&self, host_end: &str, record: &Record) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&self.folder)?;
        let new = self.folder.join(format!(".{host_end}"));
        fs::write(&new, serde_json::to_vec(record).map_err(io::Error::other)?)?;
        fs::rename(new, self.folder.join(host_end))
    }

    /// Forgets an attachment; false if it was not known.
    pub(super) fn forget(&self, host_end: &str) -> bool {
        let was_known = self.known().remove(host_end).is_some();
        if was_known
            && let Err(error) = fs::remove_file(self.folder.join(host_end))
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.folder.display(), host_end, %error, "record not removed");
        }
        was_known
    }
}

fn read(folder: &Path) -> io::Result<BTreeMap<String, Arc<Record>>> {
    let mut known = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(known),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let record: Option<Record> = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let named = |record: &Record| path.file_name().is_some_and(|name| *name == *record.host_end());
        match record.filter(named) {
            Some(record) => drop(known.insert(record.host_end(), Arc::new(record))),
            // Half-written by an agent that was killed, or somebody else's.
            None => {
                tracing::warn!(file = %path.display(), "not a record of an attachment; removing it");
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
    fn records_outlive_the_agent_and_one_sandbox_of_a_pod_counts() {
        let above = std::env::temp_dir().join(format!("ovnkube-records-{}", std::process::id()));
        let records = Records::load(&above);
        assert!(records.all().is_empty());
        let (old, new, other) = (record("old", "p"), record("new", "p"), record("other", "q"));
        for record in [&old, &other, &new] {
            records.keep(record.clone());
        }
        assert!(!records.has(&old) && records.has(&new));
        fs::write(above.join(FOLDER).join("podbroken"), "{").unwrap();
        let again = Records::load(&above);
        assert_eq!(again.all(), records.all());
        assert!(!above.join(FOLDER).join("podbroken").exists());
        assert!(again.forget(&new.host_end()) && !again.forget(&new.host_end()));
        assert_eq!(Records::load(&above).all(), [Arc::new(other)]);
        fs::remove_dir_all(above).unwrap();
    }
}
