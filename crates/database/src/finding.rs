//! What an operator should know about a member: a name for logs, Events, metrics and alerts, and a message with the remedy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How much a finding matters; the level of its log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is broken. Logged as a warning, with an Event of type Normal.
    Advice,
    /// The member works, but not as well as it should.
    Warning,
    /// Needs action. Makes `ovnkube db status` fail.
    Error,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $severity:ident,)*) => {
        /// The name of a finding: the reason of its Event, and its label in metrics.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FindingKind {
            $($(#[$doc])* $kind,)*
        }

        impl FindingKind {
            /// In the order of declaration; each has its series of `ovn_db_problem`.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The variant's name, e.g. `NoQuorum`; a contract, as alerts match it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }

            /// The same for all findings of this kind.
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$kind => Severity::$severity,)*
                }
            }
        }
    };
}

kinds! {
    /// The server does not run.
    NotRunning: Error,
    /// The file is empty, truncated, filled with zeros, or has a wrong checksum; or it is missing under a running server.
    DamagedFile: Error,
    /// The record of the database in the API cannot be used.
    BadRecord: Error,
    /// The file is a member of another cluster than the recorded one.
    ForeignCluster: Error,
    /// The file is not a raft member.
    StandaloneFile: Error,
    /// The file is another database.
    WrongDatabase: Error,
    /// Another manager uses the data directory.
    VolumeInUse: Error,
    /// The data directory is read-only, or not ours.
    DirectoryNotWritable: Error,
    /// The file system has no space left.
    DiskFull: Error,
    /// Another process listens on a port of the server.
    PortInUse: Error,
    /// The bundle of the nodes' CA or the certificate for nodes cannot be used, so that their port is closed.
    NodesShutOut: Error,
    /// The name of this member has no address, or that of another one, which this one needs to have a quorum.
    HostNotResolved: Error,
    /// The list of members does not contain this one.
    WrongMembers: Error,
    /// One more failure stops all commits.
    QuorumAtRisk: Error,
    /// Nothing can be committed.
    NoQuorum: Error,
    /// The server does not reply to its manager.
    NoReply: Error,
    /// The name of another member has no address, e.g. while its pod is down; this one is in contact with a quorum.
    PeerNotResolved: Warning,
    /// The server is neither the active one nor a backup with current data.
    NotReplicating: Warning,
    /// The server needs space for a second copy of the file.
    DiskAlmostFull: Error,
    /// Writes to the data directory take long.
    SlowDisk: Warning,
    /// The server was busy with one step for long.
    SlowServer: Warning,
    /// The server uses a whole CPU.
    HighCpu: Warning,
    /// Little memory is left for the server.
    HighMemory: Warning,
    /// The wall clock jumped.
    ClockJump: Warning,
    /// The database has an older schema than the image, and cannot be converted yet.
    SchemaOutdated: Advice,
    /// The database has a newer schema than the image.
    SchemaNewer: Advice,
    /// Members talk to each other without TLS although it is configured.
    RaftPlaintext: Advice,
    /// This release of Open vSwitch lacks fixes of raft.
    KnownRaftBugs: Advice,
}

/// Something that an operator should know about a member now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// Decides whether the finding is new: only a kind that was not there before is reported.
    pub kind: FindingKind,
    /// What is wrong, with the remedy.
    pub message: String,
}

impl Finding {
    /// `message` says what is wrong and ends with the remedy.
    pub(crate) fn new(kind: FindingKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// What finds something. Each has its own interval; a finding stays until its source checks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Preparing the file, and starting the server.
    Start,
    /// `cluster/status`, or its absence; without a cluster, replication.
    Cluster,
    /// A write to the data directory, and its free space.
    Disk,
    /// Schema and release of the server.
    Version,
    /// CPU, memory and log of the server.
    Process,
    /// The listener for nodes.
    Nodes,
    Clock,
    /// The list of members, and their names.
    Members,
    /// The file under the running server.
    File,
    /// The record in the API, compared with the running server's cluster.
    Record,
}

/// What changed between two reports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) new: Vec<Finding>,
    pub(crate) resolved: Vec<FindingKind>,
}

/// All findings of a member that still hold, and since when.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    by_source: BTreeMap<Source, Vec<Finding>>,
    since: BTreeMap<FindingKind, String>,
    /// The last reported reason why the server does not run.
    down: Option<String>,
}

impl Findings {
    /// Replaces what a source found.
    pub(crate) fn set(&mut self, source: Source, findings: Vec<Finding>) {
        self.by_source.insert(source, findings);
    }

    /// The server ended: drops the findings that only a running one can confirm.
    pub(crate) fn server_ended(&mut self) {
        self.by_source.remove(&Source::Cluster);
        self.by_source.remove(&Source::Process);
        self.by_source.remove(&Source::Nodes);
        self.by_source.remove(&Source::File);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Finding> {
        self.by_source.values().flatten()
    }

    pub(crate) fn has(&self, kind: FindingKind) -> bool {
        self.all().any(|finding| finding.kind == kind)
    }

    /// Since when a finding holds.
    pub(crate) fn since(&self, kind: FindingKind) -> Option<&str> {
        self.since.get(&kind).map(String::as_str)
    }

    /// What is new and what is over since the last call.
    pub(crate) fn changes(&mut self, now: &str) -> Changes {
        // Why a server does not run is worth knowing again when it changes; other messages have numbers in them.
        let down = self.all().find(|finding| finding.kind == FindingKind::NotRunning).map(|it| it.message.clone());
        let changed = down.is_some() && self.down.is_some() && down != self.down;
        self.down = down;
        let is_new = |finding: &&Finding| {
            !self.since.contains_key(&finding.kind) || changed && finding.kind == FindingKind::NotRunning
        };
        let new: Vec<Finding> = self.all().filter(is_new).cloned().collect();
        let resolved: Vec<FindingKind> = self.since.keys().copied().filter(|kind| !self.has(*kind)).collect();
        for finding in &new {
            self.since.entry(finding.kind).or_insert_with(|| now.to_owned());
        }
        for kind in &resolved {
            self.since.remove(kind);
        }
        Changes { new, resolved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_new_once_and_stays_until_its_source_checks_again() {
        let mut findings = Findings::default();
        findings.set(Source::Disk, vec![Finding::new(FindingKind::SlowDisk, "slow")]);
        assert_eq!(findings.changes("1").new.len(), 1);
        findings.set(Source::Cluster, vec![Finding::new(FindingKind::NoQuorum, "none")]);
        assert_eq!(findings.changes("2").new, [Finding::new(FindingKind::NoQuorum, "none")]);
        findings.server_ended();
        assert_eq!(findings.changes("3").resolved, [FindingKind::NoQuorum]);
        assert_eq!(findings.since(FindingKind::SlowDisk), Some("1"));
        findings.set(Source::Disk, Vec::new());
        assert_eq!(findings.changes("4").resolved, [FindingKind::SlowDisk]);
        assert_eq!(findings.changes("5"), Changes::default());
    }

    #[test]
    fn another_reason_why_the_server_does_not_run_is_reported() {
        let mut findings = Findings::default();
        let mut report = |message: &str, now: &str| {
            findings.set(Source::Start, vec![Finding::new(FindingKind::NotRunning, message)]);
            (findings.changes(now).new.len(), findings.since(FindingKind::NotRunning).map(str::to_owned))
        };
        assert_eq!(report("killed; restarting", "1"), (1, Some("1".into())));
        assert_eq!(report("killed; restarting", "2"), (0, Some("1".into())));
        assert_eq!(report("the record cannot be read", "3"), (1, Some("1".into())));
    }

    #[test]
    fn names_are_those_of_the_variants() {
        assert_eq!(FindingKind::ForeignCluster.name(), "ForeignCluster");
        let text = serde_json::to_string(&FindingKind::KnownRaftBugs).unwrap();
        assert_eq!(text, "\"KnownRaftBugs\"");
    }
}
