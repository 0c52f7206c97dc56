//! What a manager knows about its member, in a file next to the sockets and at `/status` of its telemetry: `ovnkube db status` reads
//! it, also while the server does not run.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize};

use crate::assess::Usage;
use crate::finding::{FindingKind, Severity};
use crate::kind::Kind;
use crate::options::{Options, Peers};
use crate::status::ClusterStatus;

/// A file that was not written for this long belongs to a manager that hangs or does not run.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(60);

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

/// What the manager of a member knows; written after each round of checks, for `ovnkube db status` on this and other hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagerStatus {
    /// Node or pod of the member.
    pub member: String,
    /// Host name or address of the member, without brackets.
    pub host: String,
    /// Port at which other hosts find this report; none without a listener.
    pub status_port: Option<u16>,
    /// The members, this one included, if clients do not know all of them: those of an active server and its backups.
    pub peers: KnownPeers,
    /// Raft: `leader`, `follower`, `candidate`, or the status of a server outside the cluster. Otherwise `active`, `backup` or `waiting`.
    /// None while no server runs or replies.
    pub role: Option<String>,
    /// Since when it has this role, as its manager saw it. RFC 3339, in UTC.
    pub since: Option<String>,
    /// Why it is neither active nor a backup with current data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// `cluster/status` of its server; none without a raft server that replies.
    pub raft: Option<ClusterStatus>,
    /// Clients of its server, its manager included.
    pub clients: Option<u64>,
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
    #[serde(deserialize_with = "known_findings")]
    pub findings: Vec<ReportedFinding>,
}

/// How `ovnkube db status` finds the members of an active server and its backups: only the active one serves clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KnownPeers {
    /// Hosts of all members; empty if they are not configured.
    pub hosts: Vec<String>,
    /// Service whose endpoints are the members.
    pub service: Option<String>,
    /// Its namespace.
    pub namespace: String,
}

impl KnownPeers {
    pub(crate) fn of(options: &Options) -> Self {
        let (hosts, service) = match &options.peers {
            Peers::Hosts(hosts) => (hosts.clone(), None),
            Peers::Service(service) => (Vec::new(), Some(service.clone())),
        };
        Self { hosts, service, namespace: options.namespace.clone() }
    }
}

/// Findings of a later version are left out: the rest of the report is still worth showing.
fn known_findings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ReportedFinding>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|finding| serde_json::from_value(finding).ok()).collect())
}

impl ManagerStatus {
    /// Notes what the server uses.
    pub(crate) fn set_usage(&mut self, usage: &Usage) {
        self.resident_bytes = Some(usage.resident);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of at most some CPUs")]
        let percent = (usage.cpu * 100.0).round() as u32;
        self.cpu_percent = Some(percent);
    }

    /// Notes the role of the server.
    pub(crate) fn set_role(&mut self, role: &str, now: impl FnOnce() -> String) {
        if self.role.as_deref() != Some(role) {
            (self.role, self.since) = (Some(role.to_owned()), Some(now()));
        }
    }

    /// Notes what a raft server replied.
    pub(crate) fn set_raft(&mut self, raft: &ClusterStatus, now: impl FnOnce() -> String) {
        self.set_role(if raft.is_member() { &raft.role } else { &raft.status }, now);
        self.raft = Some(raft.clone());
    }

    /// Forgets what only a server that replies can tell.
    pub(crate) fn clear_server(&mut self) {
        (self.role, self.since, self.raft, self.clients) = (None, None, None, None);
        (self.resident_bytes, self.cpu_percent) = (None, None);
    }

    /// The report as a document; empty if it cannot be encoded, which its types exclude.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_role_is_that_of_its_beginning() {
        let mut status = ManagerStatus::default();
        let raft = |status: &str, role: &str| ClusterStatus {
            status: status.into(),
            role: role.into(),
            ..ClusterStatus::default()
        };
        let seen = |status: &ManagerStatus| (status.role.clone().unwrap(), status.since.clone().unwrap());
        status.set_raft(&raft("joining cluster", "follower"), || "1".into());
        assert_eq!(seen(&status), ("joining cluster".into(), "1".into()));
        status.set_raft(&raft("cluster member", "follower"), || "2".into());
        status.set_raft(&raft("cluster member", "follower"), || "3".into());
        assert_eq!(seen(&status), ("follower".into(), "2".into()));
        status.clear_server();
        assert_eq!((&status.role, &status.since, &status.raft), (&None, &None, &None));
    }

    #[test]
    fn findings_of_a_later_version_do_not_hide_the_rest() {
        let finding = |name: &str| format!(r#"{{"name":"{name}","severity":"error","message":"m","since":"s"}}"#);
        let known = serde_json::to_value(FindingKind::DiskFull).unwrap();
        let text = format!(
            r#"{{"member":"n1","findings":[{},{}]}}"#,
            finding("OfALaterVersion"),
            finding(known.as_str().unwrap())
        );
        let mut status: ManagerStatus = serde_json::from_str(&text).unwrap();
        assert_eq!((status.member.as_str(), status.findings.len()), ("n1", 1));
        status.set_role("active", || "now".into());
        let again: ManagerStatus = serde_json::from_str(&status.json()).unwrap();
        assert_eq!(again, status);
    }
}
