//! Decides what a healthy leader does for its cluster, and what is reported about a member. Pure.
//!
//! Only the leader changes the configuration of the cluster: it removes members that were replaced or are gone, and adapts
//! the election timer. Every other decision is about the member itself.

use std::time::Duration;

use crate::status::{ClusterStatus, Server};

/// Something that only the leader does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Remove a server from the configuration.
    Kick {
        /// Short server ID.
        server: String,
        /// Why.
        reason: String,
    },
    /// Change the election timer, in milliseconds.
    SetElectionTimer(u64),
}

/// What an operator should know. `Display` names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// One more failure stops all commits.
    #[error(
        "quorum at risk: {alive} of {members} members are alive, and {quorum} are needed; bring back {missing}, or replace \
         it: `ovnkube db replace-member`"
    )]
    QuorumAtRisk {
        /// Members that replied lately.
        alive: usize,
        /// Members in all.
        members: usize,
        /// Members that a commit needs.
        quorum: usize,
        /// Addresses of the silent ones.
        missing: String,
    },
    /// The server does not run.
    #[error("the server does not run: {why}")]
    NotRunning {
        /// Why.
        why: String,
    },
    /// Nothing can be committed.
    #[error(
        "no quorum: this member has no leader ({status}); nothing can be written until a majority of the members runs; \
         start them, or, if their volumes are lost, `ovnkube db rebuild`"
    )]
    NoQuorum {
        /// The server's own words.
        status: String,
    },
    /// The file system is almost full.
    #[error(
        "disk almost full: {free_mb} MB free, and the database needs {needed_mb} MB to compact its file; enlarge the volume or \
         remove other files"
    )]
    DiskAlmostFull {
        /// Free space.
        free_mb: u64,
        /// Space for one more copy of the database, with a reserve.
        needed_mb: u64,
    },
    /// Commits take long.
    #[error(
        "slow disk: a write to the data directory took {took_ms} ms; raft members need a disk that syncs in milliseconds"
    )]
    SlowDisk {
        /// How long one took.
        took_ms: u64,
    },
}

impl Finding {
    /// All names, for metrics.
    pub const NAMES: [&str; 5] = ["NotRunning", "QuorumAtRisk", "NoQuorum", "DiskAlmostFull", "SlowDisk"];

    /// Whether it is about the disk, which is looked at less often than the cluster.
    pub fn is_of_disk(&self) -> bool {
        matches!(self, Self::DiskAlmostFull { .. } | Self::SlowDisk { .. })
    }

    /// The reason of its Event, and its label in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotRunning { .. } => "NotRunning",
            Self::QuorumAtRisk { .. } => "QuorumAtRisk",
            Self::NoQuorum { .. } => "NoQuorum",
            Self::DiskAlmostFull { .. } => "DiskAlmostFull",
            Self::SlowDisk { .. } => "SlowDisk",
        }
    }
}

/// A server is silent if no message arrived for this many election timers.
const SILENT_TIMERS: u64 = 5;

/// A server at an address that no member has any more is removed after this long, in milliseconds.
const GONE_MS: u64 = 300_000;

/// What the leader should do now. `wanted_timer` is the election timer for a cluster of this size; `addresses` are the raft
/// addresses of all members, running or not, none if unknown.
pub fn actions(status: &ClusterStatus, wanted_timer: u64, addresses: Option<&[String]>) -> Vec<Action> {
    if !status.is_leader() || !status.is_member() {
        return Vec::new();
    }
    // One change of the configuration at a time: raft accepts no other.
    let stale = |server: &Server| replaced(status, server).or_else(|| gone(status, server, addresses?));
    if let Some(kick) = status.servers.iter().find_map(stale) {
        return vec![kick];
    }
    let timer = status.election_timer;
    // It may at most double at once.
    let next = wanted_timer.min(timer.saturating_mul(2));
    if timer > 0 && next != timer { vec![Action::SetElectionTimer(next)] } else { Vec::new() }
}

/// A silent server whose address another, live server has: its volume was lost, and its successor joined.
fn replaced(status: &ClusterStatus, server: &Server) -> Option<Action> {
    let silence = silence_limit(status);
    let is_alive = |server: &Server| server.this || server.silent_ms.is_some_and(|ms| ms < silence);
    let successor = status.servers.iter().find(|other| other.id != server.id && other.address == server.address)?;
    (!is_alive(server) && is_alive(successor)).then(|| Action::Kick {
        server: server.id.clone(),
        reason: format!("server {} replaced it at {}", successor.id, server.address),
    })
}

/// A server whose node was removed, or has another address now. It is not removed if that would leave no quorum.
fn gone(status: &ClusterStatus, server: &Server, addresses: &[String]) -> Option<Action> {
    // Without a message since this leader was elected, its silence is not known yet.
    let silent = !server.this && server.silent_ms.is_some_and(|ms| ms >= GONE_MS);
    let left = status.servers.len() - 1;
    let enough = status.alive(silence_limit(status)) > left / 2;
    let unknown = !addresses.contains(&server.address) && addresses.contains(&status.address);
    (silent && enough && unknown).then(|| Action::Kick {
        server: server.id.clone(),
        reason: format!("no member has its address {}", server.address),
    })
}

fn silence_limit(status: &ClusterStatus) -> u64 {
    status.election_timer.max(1000) * SILENT_TIMERS
}

/// What is wrong with the cluster, as this member sees it.
pub fn findings(status: &ClusterStatus) -> Vec<Finding> {
    if !status.is_member() || !status.has_leader() {
        let status = if status.status.is_empty() { "not a member" } else { &status.status };
        return vec![Finding::NoQuorum { status: status.to_owned() }];
    }
    let silence = silence_limit(status);
    let (members, quorum, alive) = (status.servers.len(), status.quorum(), status.alive(silence));
    // One that was replaced is about to be removed by the leader itself.
    let replaced = status.servers.iter().any(|server| replaced(status, server).is_some());
    if !status.is_leader() || alive == members || alive > quorum || replaced {
        return Vec::new();
    }
    let silent = |server: &&Server| !server.this && server.silent_ms.is_none_or(|ms| ms >= silence);
    let missing: Vec<&str> = status.servers.iter().filter(silent).map(|server| server.address.as_str()).collect();
    vec![Finding::QuorumAtRisk { alive, members, quorum, missing: missing.join(", ") }]
}

/// What is wrong with the disk. The server writes a second copy of the file when it compacts it.
pub fn disk_findings(free: u64, file: u64, last_sync: Duration) -> Vec<Finding> {
    const RESERVE: u64 = 64 << 20;
    const SLOW: Duration = Duration::from_millis(500);
    let mut findings = Vec::new();
    let needed = file.saturating_mul(2).saturating_add(RESERVE);
    if free < needed {
        findings.push(Finding::DiskAlmostFull { free_mb: free >> 20, needed_mb: needed >> 20 });
    }
    if last_sync >= SLOW {
        findings.push(Finding::SlowDisk { took_ms: last_sync.as_millis().try_into().unwrap_or(u64::MAX) });
    }
    findings
}

/// The election timer for a cluster of this many nodes, in milliseconds: a server of a large cluster needs longer for its
/// largest transactions, and a leader that is busy must not be replaced.
pub fn election_timer(nodes: usize) -> u64 {
    match nodes {
        0..=50 => 1000,
        51..=150 => 2000,
        151..=300 => 4000,
        301..=500 => 8000,
        _ => 16_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_replaced_server_is_removed_and_a_silent_one_is_not() {
        let replaced = leader(vec![
            server("aaaa", "tcp:1", None),
            server("bbbb", "tcp:2", Some(9000)),
            server("cccc", "tcp:2", Some(100)),
        ]);
        let [Action::Kick { server: kicked, .. }] = &actions(&replaced, 1000, None)[..] else { panic!("no kick") };
        assert_eq!(kicked, "bbbb");
        let silent = leader(vec![server("aaaa", "tcp:1", None), server("bbbb", "tcp:2", Some(90_000_000))]);
        assert_eq!(actions(&silent, 1000, None), []);
        let both_silent = leader(vec![
            server("aaaa", "tcp:1", None),
            server("bbbb", "tcp:2", Some(9000)),
            server("cccc", "tcp:2", Some(9000)),
        ]);
        assert_eq!(actions(&both_silent, 1000, None), []);
        let moved = leader(vec![
            server("aaaa", "tcp:1", None),
            server("bbbb", "tcp:2", Some(100)),
            server("cccc", "tcp:3", Some(GONE_MS)),
        ]);
        let moved = ClusterStatus { address: "tcp:1".into(), ..moved };
        let addresses = ["tcp:1", "tcp:2"].map(str::to_owned);
        let [Action::Kick { server: kicked, .. }] = &actions(&moved, 1000, Some(&addresses))[..] else {
            panic!("no kick")
        };
        assert_eq!(kicked, "cccc");
        // A list without this member itself is not the list of all members.
        assert_eq!(actions(&moved, 1000, Some(&addresses[1..])), []);
        let follower = ClusterStatus { role: "follower".into(), ..replaced };
        assert_eq!(actions(&follower, 1000, None), []);
    }

    #[test]
    fn the_election_timer_is_changed_in_steps_that_the_server_accepts() {
        let mut status = leader(vec![server("aaaa", "tcp:1", None)]);
        assert_eq!(actions(&status, 1000, None), []);
        let mut steps = Vec::new();
        while let [Action::SetElectionTimer(timer)] = actions(&status, 16_000, None)[..] {
            steps.push(timer);
            status.election_timer = timer;
        }
        assert_eq!(steps, [2000, 4000, 8000, 16_000]);
        assert_eq!(actions(&status, 1000, None), [Action::SetElectionTimer(1000)]);
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
        assert_eq!(findings(&all([10, 10])), []);
        let at_risk = findings(&all([10, 60_000]));
        assert!(
            matches!(&at_risk[..], [Finding::QuorumAtRisk { alive: 2, members: 3, quorum: 2, missing }] if missing == "tcp:3")
        );
        assert_eq!(findings(&leader(vec![server("aaaa", "tcp:1", None)])), []);
        let candidate = ClusterStatus { role: "candidate".into(), leader: "unknown".into(), ..all([60_000, 60_000]) };
        assert!(matches!(&findings(&candidate)[..], [Finding::NoQuorum { .. }]));
    }

    #[test]
    fn a_disk_needs_room_for_a_second_copy() {
        let fast = Duration::from_millis(2);
        assert_eq!(disk_findings(1 << 30, 100 << 20, fast), []);
        assert!(matches!(disk_findings(100 << 20, 100 << 20, fast)[..], [Finding::DiskAlmostFull { .. }]));
        assert!(matches!(disk_findings(1 << 30, 0, Duration::from_secs(2))[..], [Finding::SlowDisk { .. }]));
    }
}
