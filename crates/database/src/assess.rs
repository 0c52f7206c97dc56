//! What is wrong with a member and its cluster, from what was measured. Pure. Every message names the remedy.

use std::time::Duration;

use crate::finding::{Finding, FindingKind};
use crate::maintenance::{replaced, silence_limit};
use crate::names::LookupError;
use crate::status::{ClusterStatus, Server};

/// What is wrong with the cluster, as this member sees it.
pub(crate) fn cluster(status: &ClusterStatus) -> Vec<Finding> {
    if status.has_failed() {
        return vec![Finding::new(
            FindingKind::NotRunning,
            "the server gave up after an I/O error and serves nothing; it is restarted when the data directory can be written \
             again; free space on the disk, or repair it",
        )];
    }
    if status.is_joining() {
        return vec![Finding::new(
            FindingKind::NoQuorum,
            "this member joins the cluster, and no member has accepted it yet; it is retried until one does; check that the other \
             members run and that this one reaches their raft ports; if the volumes of all members are lost: `ovnkube db restore` \
             or `ovnkube db rebuild`",
        )];
    }
    if !status.is_member() || !status.has_leader() {
        let status = if status.status.is_empty() { "not a member" } else { &status.status };
        return vec![Finding::new(
            FindingKind::NoQuorum,
            format!(
                "no quorum: this member has no leader ({status}); nothing can be written until a majority of the members runs; \
                 start them, or, if their volumes are lost, `ovnkube db rebuild`"
            ),
        )];
    }
    let silence = silence_limit(status);
    let (members, quorum, alive) = (status.servers.len(), status.quorum(), status.alive(silence));
    // One that was replaced is about to be removed by the leader itself.
    let replaced = status.servers.iter().any(|server| replaced(status, server).is_some());
    if !status.is_leader() || alive == members || alive > quorum || replaced {
        return Vec::new();
    }
    let silent = |server: &&Server| !server.is_alive(silence);
    let missing: Vec<&str> = status.servers.iter().filter(silent).map(|server| server.address.as_str()).collect();
    vec![Finding::new(
        FindingKind::QuorumAtRisk,
        format!(
            "quorum at risk: {alive} of {members} members are alive, and {quorum} are needed; bring back {}; if its file is damaged, \
             while there is a leader: `ovnkube db replace-member` in its pod",
            missing.join(", ")
        ),
    )]
}

/// A commit waits for a sync of this disk; one that takes longer is reported.
const SLOW_SYNC: Duration = Duration::from_millis(500);

/// What is wrong with the disk. The server writes a second copy of the file when it compacts it.
pub(crate) fn disk(free: u64, file: u64, last_sync: Duration) -> Vec<Finding> {
    const RESERVE: u64 = 64 << 20;
    let mut findings = Vec::new();
    let needed = file.saturating_mul(2).saturating_add(RESERVE);
    if free < needed {
        findings.push(Finding::new(
            FindingKind::DiskAlmostFull,
            format!(
                "disk almost full: {} MB free, and the database needs {} MB to compact its file; enlarge the volume or remove \
                 other files",
                free >> 20,
                needed >> 20
            ),
        ));
    }
    if last_sync >= SLOW_SYNC {
        findings.push(Finding::new(
            FindingKind::SlowDisk,
            format!(
                "slow disk: a write to the data directory took {} ms, and raft needs a disk that syncs in milliseconds; move the \
                 data directory to a faster disk (SSD), or stop other processes that write to this one",
                last_sync.as_millis()
            ),
        ));
    }
    findings
}

/// The finding of a member's name without an address: `own`, or that of another member. The record of a pod that is down is
/// missing for all others, and blocks only a member that does not work (`works`: it is in contact with a quorum).
pub(crate) fn unresolved(host: &str, error: &LookupError, own: bool, works: bool) -> Finding {
    if own {
        let message = format!(
            "host name {host} of this member does not resolve: {error}; other members cannot reach it; correct --host or the DNS \
             record"
        );
        return Finding::new(FindingKind::HostNotResolved, message);
    }
    let (kind, effect) = if works {
        (FindingKind::PeerNotResolved, "this member cannot connect to it, and works without it")
    } else {
        (FindingKind::HostNotResolved, "this member cannot connect to it, and has no quorum")
    };
    let remedy = "start that member, or correct --peers or the DNS record";
    Finding::new(kind, format!("host name {host} of another member does not resolve: {error}; {effect}; {remedy}"))
}

/// The kind of a failure, from the words of the system, of `ovsdb-tool` or of ovsdb-server; none if they fit no other.
pub(crate) fn classify(text: &str) -> Option<FindingKind> {
    let words: [(FindingKind, &[&str]); 4] = [
        (FindingKind::DirectoryNotWritable, &["Read-only file system", "Permission denied", "Operation not permitted"]),
        (FindingKind::DiskFull, &["No space left on device", "Disk quota exceeded"]),
        (FindingKind::PortInUse, &["Address already in use"]),
        // ovsdb-server's own words for records after the first one.
        (
            FindingKind::DamagedFile,
            &["SHA-1 hash", "inconsistent data", "bytes starting at offset", "syntax error: Parsing raft"],
        ),
    ];
    words.into_iter().find(|(_, parts)| parts.iter().any(|part| text.contains(part))).map(|(kind, _)| kind)
}

/// The finding of a failure that keeps the server from running, besides [`FindingKind::NotRunning`].
pub(crate) fn failure(text: &str) -> Option<Finding> {
    let remedy = match classify(text)? {
        FindingKind::DirectoryNotWritable => {
            "the data directory cannot be written; check its mount, the disk for errors (`dmesg`), and its owner"
        }
        FindingKind::DiskFull => {
            "the file system of the data directory is full; remove other files or enlarge it, and the server works again"
        }
        FindingKind::PortInUse => {
            "another process has a port of the server, often an ovsdb-server of the host's own packages; stop and disable it"
        }
        _ => {
            "the file is damaged; the other members keep their copies: start a majority of them, then `ovnkube db replace-member` \
             puts it aside and joins again; if their volumes are lost, `ovnkube db restore` or `ovnkube db rebuild`"
        }
    };
    let kind = classify(text)?;
    Some(Finding::new(kind, format!("{text}; {remedy}")))
}

/// Why the server exited, and the finding if it has a name. `warnings` are the latest in its log: the cause is among the first,
/// and the last ones are often only its consequences (`server configuration failed`).
pub(crate) fn exit(exit: &str, warnings: &[String]) -> (String, Option<Finding>) {
    const SHOWN: usize = 3;
    let cause = warnings.iter().find_map(|line| Some((line, failure(line)?)));
    let shown = match &cause {
        Some((line, _)) => (*line).clone(),
        None => warnings[warnings.len().saturating_sub(SHOWN)..].join("; "),
    };
    let shown = if shown.is_empty() { shown } else { format!(" ({shown})") };
    (format!("ovsdb-server exited: {exit}{shown}"), cause.map(|(_, finding)| finding))
}

/// What a warning of the server's log says: a port that it cannot listen on, or a step that took long.
pub(crate) fn log_line(line: &str) -> Option<LogWarning> {
    if line.contains("listen failed") || line.contains("Address already in use") {
        return Some(LogWarning::ListenFailed);
    }
    // `timeval: Unreasonably long 2345ms poll interval (2300ms user, 12ms system)`
    let (_, rest) = line.split_once("Unreasonably long ")?;
    let (milliseconds, _) = rest.split_once("ms poll interval")?;
    Some(LogWarning::Busy(Duration::from_millis(milliseconds.parse().ok()?)))
}

/// A warning of the server that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogWarning {
    /// A port is in use.
    ListenFailed,
    /// One step took this long; meanwhile the server did nothing else.
    Busy(Duration),
}

/// Use of resources by the server in the last interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// Share of one CPU; 1 is a whole one.
    pub cpu: f64,
    /// Intervals in a row with a whole CPU.
    pub busy_intervals: u32,
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Bytes that the server may still allocate: of its cgroup's limit and of the host.
    pub available: Option<u64>,
    /// The longest step since the last sample.
    pub longest_step: Duration,
    /// Election timer of the cluster: a longer step costs the leadership. None without a cluster.
    pub election_timer: Option<Duration>,
}

/// A CPU share from which the single-threaded server counts as busy.
pub(crate) const BUSY_CPU: f64 = 0.9;

/// What is wrong with the server's use of CPU and memory, and its speed.
pub(crate) fn usage(usage: &Usage) -> Vec<Finding> {
    /// Two minutes of intervals of 30 s.
    const LONG: u32 = 4;
    const SMALLEST: u64 = 64 << 20;
    let mut findings = Vec::new();
    // Half of an election timer: twice as long costs the leadership.
    let limit = usage.election_timer.unwrap_or_default().max(Duration::from_secs(2)) / 2;
    if usage.longest_step >= limit {
        let timer = usage.election_timer.map_or_else(String::new, |timer| {
            format!("; an election timer of {} ms is too short for steps that are longer", timer.as_millis())
        });
        findings.push(Finding::new(
            FindingKind::SlowServer,
            format!(
                "the server was busy with one step for {} ms, and nothing else was read or committed meanwhile; look for large \
                 transactions and a busy CPU{timer}",
                usage.longest_step.as_millis(),
            ),
        ));
    }
    if usage.busy_intervals >= LONG {
        findings.push(Finding::new(
            FindingKind::HighCpu,
            format!(
                "the server has used {:.0} % of a CPU for two minutes and has no second one to use; look for clients that reconnect \
                 or write in a loop (`ovnkube db status` has the number of clients)",
                usage.cpu * 100.0
            ),
        ));
    }
    // A compaction and a new client's dump need about half of it again.
    if let Some(available) = usage.available.filter(|available| *available < usage.resident / 2 + SMALLEST) {
        findings.push(Finding::new(
            FindingKind::HighMemory,
            format!(
                "the server uses {} MB, and {} MB are left: the kernel may kill it; raise the container's memory limit or free \
                 memory of the node",
                usage.resident >> 20,
                available >> 20
            ),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(findings: &[Finding]) -> Vec<FindingKind> {
        findings.iter().map(|finding| finding.kind).collect()
    }

    fn server(id: &str, address: &str, silent_ms: Option<u64>) -> Server {
        Server { id: id.into(), address: address.into(), this: silent_ms.is_none(), match_index: Some(5), silent_ms }
    }

    fn leader(servers: Vec<Server>) -> ClusterStatus {
        ClusterStatus {
            status: "cluster member".into(),
            role: "leader".into(),
            leader: "self".into(),
            election_timer: 1000,
            servers,
            ..ClusterStatus::default()
        }
    }

    #[test]
    fn a_leader_reports_a_quorum_at_risk_and_a_follower_without_leader_no_quorum() {
        let all = |silent: [u64; 2]| {
            leader(vec![
                server("aaaa", "tcp:1", None),
                server("bbbb", "tcp:2", Some(silent[0])),
                server("cccc", "tcp:3", Some(silent[1])),
            ])
        };
        assert_eq!(cluster(&all([10, 10])), []);
        let at_risk = cluster(&all([10, 60_000]));
        assert_eq!(kinds(&at_risk), [FindingKind::QuorumAtRisk]);
        assert!(at_risk[0].message.contains("2 of 3") && at_risk[0].message.contains("bring back tcp:3"));
        assert_eq!(cluster(&leader(vec![server("aaaa", "tcp:1", None)])), []);
        let candidate = ClusterStatus { role: "candidate".into(), leader: "unknown".into(), ..all([60_000, 60_000]) };
        assert_eq!(kinds(&cluster(&candidate)), [FindingKind::NoQuorum]);
        let failed = ClusterStatus { status: "failed".into(), ..candidate };
        assert_eq!(kinds(&cluster(&failed)), [FindingKind::NotRunning]);
    }

    #[test]
    fn a_disk_needs_room_for_a_second_copy() {
        let fast = Duration::from_millis(2);
        assert_eq!(disk(1 << 30, 100 << 20, fast), []);
        assert_eq!(kinds(&disk(100 << 20, 100 << 20, fast)), [FindingKind::DiskAlmostFull]);
        assert_eq!(kinds(&disk(1 << 30, 0, Duration::from_secs(2))), [FindingKind::SlowDisk]);
    }

    #[test]
    fn failures_are_named_by_their_words() {
        for (text, kind) in [
            (
                "cannot remove /etc/ovn/ovnnb_db.initial: Read-only file system (os error 30)",
                FindingKind::DirectoryNotWritable,
            ),
            ("ovsdb-tool create failed: I/O error: write: No space left on device", FindingKind::DiskFull),
            ("ovsdb_jsonrpc_server: ptcp:6641: listen failed: Address already in use", FindingKind::PortInUse),
            (
                "ovsdb-server: syntax error: 19 bytes starting at offset 388 have SHA-1 hash 0 but should have",
                FindingKind::DamagedFile,
            ),
        ] {
            let finding = failure(text).unwrap();
            assert_eq!(finding.kind, kind);
            assert!(finding.message.starts_with(text) && finding.message.len() > text.len() + 20, "no remedy");
        }
        assert_eq!(failure("exit status: 1"), None);
    }

    #[test]
    fn the_missing_name_of_another_member_is_an_error_only_without_a_quorum() {
        let kind = |own, works| unresolved("db-1", &LookupError::NoAnswer, own, works).kind;
        assert_eq!(kind(false, true), FindingKind::PeerNotResolved);
        assert_eq!(FindingKind::PeerNotResolved.severity(), crate::finding::Severity::Warning);
        assert_eq!([kind(false, false), kind(true, false), kind(true, true)], [FindingKind::HostNotResolved; 3]);
    }

    #[test]
    fn a_slow_step_in_the_log_is_recognized() {
        let line = "timeval: Unreasonably long 2345ms poll interval (2300ms user, 12ms system)";
        assert_eq!(log_line(line), Some(LogWarning::Busy(Duration::from_millis(2345))));
        assert_eq!(log_line("ovsdb_jsonrpc_server: ptcp:6641: listen failed: …"), Some(LogWarning::ListenFailed));
        assert_eq!(log_line("raft: term 2: starting election"), None);
    }

    #[test]
    fn a_server_that_is_slow_busy_or_short_of_memory_is_reported() {
        let second = Some(Duration::from_secs(1));
        let idle = Usage { election_timer: second, resident: 80 << 20, ..Usage::default() };
        assert_eq!(usage(&idle), []);
        let slow = Usage { longest_step: Duration::from_millis(1200), ..idle };
        assert_eq!(kinds(&usage(&slow)), [FindingKind::SlowServer]);
        let patient = Usage { election_timer: Some(Duration::from_secs(16)), ..slow };
        assert_eq!(usage(&patient), []);
        let alone = usage(&Usage { election_timer: None, ..slow });
        assert!(alone[0].kind == FindingKind::SlowServer && !alone[0].message.contains("election"), "{alone:?}");
        let busy = Usage { cpu: 1.0, busy_intervals: 4, ..idle };
        assert_eq!(kinds(&usage(&busy)), [FindingKind::HighCpu]);
        assert_eq!(usage(&Usage { busy_intervals: 3, ..busy }), []);
        let tight = Usage { available: Some(90 << 20), ..idle };
        assert_eq!(kinds(&usage(&tight)), [FindingKind::HighMemory]);
    }
}
