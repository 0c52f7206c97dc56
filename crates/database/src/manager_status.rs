//! What a manager knows about its member, in a file next to the sockets: `ovnkube db status` reads it, also while the server
//! does not run.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::assess::Usage;
use crate::finding::{FindingKind, Severity};
use crate::kind::Kind;

/// A file that was not written for this long belongs to a manager that hangs or does not run.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// One finding, with the time since when it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedFinding {
    /// A finding of the manager, by the name that logs, Events and metrics use.
    pub name: FindingKind,
    /// Redundant with `name`, for readers of the JSON.
    pub severity: Severity,
    /// What is wrong, and the remedy.
    pub message: String,
    /// RFC 3339, in UTC; a finding that returns counts as new.
    pub since: String,
}

/// What the manager of a member knows; written after each round of checks, for `ovnkube db status` on the same host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagerStatus {
    /// Node or pod of the member.
    pub member: String,
    /// With method and port, e.g. `ssl:192.0.2.1:6643`.
    pub raft_address: String,
    /// Its port between members: commands about this member use it too.
    pub raft_port: u16,
    /// Its port for clients that are not nodes; none if all have the same.
    pub control_port: Option<u16>,
    /// Process ID of ovsdb-server; none while it does not run.
    pub process: Option<u32>,
    /// Release of Open vSwitch, e.g. `3.5.0`.
    pub server_version: Option<String>,
    /// Schema version of the running database, e.g. `7.11.0`.
    pub schema: Option<String>,
    /// Schema version of the file in the image.
    pub image_schema: Option<String>,
    /// Size of the database file.
    pub file_bytes: Option<u64>,
    /// Free space for an unprivileged process in the data directory's file system.
    pub disk_free_bytes: Option<u64>,
    /// When the file was written: the last commit that this member has.
    pub last_write: Option<String>,
    /// Resident memory of the server.
    pub resident_bytes: Option<u64>,
    /// CPU use of the server in the last 30 s, in percent of one CPU.
    pub cpu_percent: Option<u32>,
    /// What holds now; empty if nothing is wrong.
    pub findings: Vec<ReportedFinding>,
}

impl ManagerStatus {
    /// Notes what the server uses.
    pub(crate) fn set_usage(&mut self, usage: &Usage) {
        self.resident_bytes = Some(usage.resident);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of at most some CPUs")]
        let percent = (usage.cpu * 100.0).round() as u32;
        self.cpu_percent = Some(percent);
    }

    /// Writes the file; readers see the old or the new one.
    pub fn write(&self, kind: Kind, run_directory: &Path) -> io::Result<()> {
        let path = kind.manager_status(run_directory);
        let partial = path.with_extension("json.partial");
        std::fs::write(&partial, serde_json::to_vec(self)?)?;
        std::fs::rename(&partial, &path)
    }

    /// Reads the file; none without one.
    pub fn read(kind: Kind, run_directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(kind.manager_status(run_directory)).ok()?).ok()
    }

    /// How long ago a manager wrote the file, if that is too long for one that works.
    pub fn stale_for(kind: Kind, run_directory: &Path) -> Option<Duration> {
        let written = std::fs::metadata(kind.manager_status(run_directory)).and_then(|file| file.modified()).ok()?;
        SystemTime::now().duration_since(written).ok().filter(|age| *age > STALE_AFTER)
    }
}
