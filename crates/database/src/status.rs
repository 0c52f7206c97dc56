//! The state of a raft member, parsed from `cluster/status` of its server.

use serde::{Deserialize, Serialize};

/// State of a raft member as its server reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Cluster ID; not a UUID until the server has joined.
    pub cluster: String,
    /// Server ID in full.
    pub server: String,
    /// Raft address with method and port, e.g. `ssl:192.0.2.1:6643`.
    pub address: String,
    /// `cluster member`, `joining cluster`, `disconnected from the cluster (…)`, …
    pub status: String,
    /// `leader`, `follower` or `candidate`.
    pub role: String,
    /// Raft term: it grows with each election.
    pub term: u64,
    /// Short ID of the leader, `self`, or `unknown`.
    pub leader: String,
    /// Milliseconds without a leader after which this server wants to become one.
    pub election_timer: u64,
    /// First index of the log, and the one after its last.
    pub log: (u64, u64),
    /// Entries not committed yet.
    pub uncommitted: u64,
    /// Entries not applied yet.
    pub unapplied: u64,
    /// Short IDs of servers that are connected, in either direction.
    pub inbound: Vec<String>,
    /// Short IDs of servers that it is connected to.
    pub outbound: Vec<String>,
    /// How often a connection between members was lost.
    pub disconnections: u64,
    /// The members, by the configuration in the log.
    pub servers: Vec<Server>,
}

/// A member in the configuration of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Server {
    /// The first four digits of the server ID.
    pub id: String,
    /// Raft address with method and port, e.g. `ssl:192.0.2.1:6643`.
    pub address: String,
    /// Whether it is the server that reports.
    pub this: bool,
    /// Index up to which the leader knows that it has the log; only a leader reports it.
    pub match_index: Option<u64>,
    /// Milliseconds since its last message.
    pub silent_ms: Option<u64>,
}

impl ClusterStatus {
    /// Parses the output of `cluster/status`. Lines of other versions are skipped.
    pub fn parse(text: &str) -> Self {
        let mut status = Self::default();
        let mut in_servers = false;
        for line in text.lines() {
            if in_servers && line.starts_with(' ') {
                status.servers.extend(server(line.trim()));
                continue;
            }
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let number = || value.parse().unwrap_or(0);
            match key.trim() {
                "Cluster ID" => status.cluster = full_id(value),
                "Server ID" => status.server = full_id(value),
                "Address" => status.address = value.to_owned(),
                "Status" => status.status = value.to_owned(),
                "Role" => status.role = value.to_owned(),
                "Term" => status.term = number(),
                "Leader" => status.leader = value.to_owned(),
                "Election timer" => status.election_timer = number(),
                "Log" => status.log = range(value).unwrap_or_default(),
                "Entries not yet committed" => status.uncommitted = number(),
                "Entries not yet applied" => status.unapplied = number(),
                "Disconnections" => status.disconnections = number(),
                "Connections" => {
                    for word in value.split_whitespace() {
                        if let Some(id) = word.strip_prefix("<-") {
                            status.inbound.push(id.to_owned());
                        } else if let Some(id) = word.strip_prefix("->") {
                            status.outbound.push(id.to_owned());
                        }
                    }
                }
                "Servers" => in_servers = true,
                _ => {}
            }
        }
        status
    }

    /// Whether it is part of the cluster: neither joining nor removed.
    pub fn is_member(&self) -> bool {
        self.status == "cluster member"
    }

    /// Whether no member has accepted it yet.
    pub fn is_joining(&self) -> bool {
        self.status.starts_with("joining")
    }

    /// Whether its server gave up after an I/O error. It serves nothing until it is restarted.
    pub fn has_failed(&self) -> bool {
        self.status.starts_with("failed")
    }

    /// Whether it knows a leader: it is in contact with a quorum.
    pub fn has_leader(&self) -> bool {
        !matches!(self.leader.as_str(), "" | "unknown")
    }

    /// Whether the server claims to lead; after a partition, two may for a moment.
    pub fn is_leader(&self) -> bool {
        self.role == "leader"
    }

    /// The short form of a server ID, as in [`Server::id`].
    pub fn short_id(&self) -> &str {
        self.server.get(..4).unwrap_or(&self.server)
    }

    /// Members that must agree on a commit.
    pub fn quorum(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// Members that the leader heard of lately, itself included. Followers do not know.
    pub fn alive(&self, limit_ms: u64) -> usize {
        self.servers.iter().filter(|server| server.is_alive(limit_ms)).count()
    }
}

impl Server {
    /// Whether it is this server, or the leader heard of it within this many milliseconds.
    pub fn is_alive(&self, limit_ms: u64) -> bool {
        self.this || self.silent_ms.is_some_and(|ms| ms < limit_ms)
    }
}

/// An address without its scheme: `192.0.2.1:6643` of `ssl:192.0.2.1:6643`. A member that begins to use TLS is still there.
pub fn host_and_port(address: &str) -> &str {
    address.split_once(':').filter(|(scheme, _)| matches!(*scheme, "ssl" | "tcp")).map_or(address, |(_, rest)| rest)
}

/// `9efd (9efdc05e-0e3f-4d87-8c24-468f6c6cebd0)` is the long form.
fn full_id(value: &str) -> String {
    let long = value.split_once('(').map(|(_, rest)| rest.trim_end_matches(')'));
    long.unwrap_or(value).to_owned()
}

/// `[2, 7]`
fn range(value: &str) -> Option<(u64, u64)> {
    let (first, next) = value.strip_prefix('[')?.strip_suffix(']')?.split_once(',')?;
    Some((first.trim().parse().ok()?, next.trim().parse().ok()?))
}

/// `37af (37af at tcp:127.0.0.3:6643) (self) next_index=7 match_index=5 last msg 5196 ms ago`
fn server(line: &str) -> Option<Server> {
    let (id, rest) = line.split_once(' ')?;
    let (_, rest) = rest.split_once(" at ")?;
    let (address, rest) = rest.split_once(')')?;
    let word_after = |key: &str| {
        let (_, value) = rest.split_once(key)?;
        value.split_whitespace().next()?.parse().ok()
    };
    Some(Server {
        id: id.to_owned(),
        address: address.to_owned(),
        this: rest.contains("(self)"),
        match_index: word_after("match_index="),
        silent_ms: word_after("last msg "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: &str = "551c
Name: OVN_Northbound
Cluster ID: 9efd (9efdc05e-0e3f-4d87-8c24-468f6c6cebd0)
Server ID: 551c (551ce763-4a79-41fe-a2f9-4c4addc31671)
Address: tcp:127.0.0.1:7001
Status: cluster member
Role: leader
Term: 2
Leader: self
Vote: self

Last Election won: 9675 ms ago
Election timer: 1000
Log: [2, 7]
Entries not yet committed: 0
Entries not yet applied: 1
Connections: <-02a4 ->02a4 ->37af <-e75d
Disconnections: 1
Servers:
    37af (37af at tcp:127.0.0.3:7001) next_index=7 match_index=5 last msg 5196 ms ago
    e75d (e75d at tcp:127.0.0.3:7001) next_index=7 match_index=6 last msg 212 ms ago
    551c (551c at tcp:127.0.0.1:7001) (self) next_index=3 match_index=6
    02a4 (02a4 at tcp:127.0.0.2:7001) next_index=7 match_index=6 last msg 212 ms ago
";

    #[test]
    fn a_leader_knows_its_members() {
        let status = ClusterStatus::parse(LEADER);
        assert_eq!(status.cluster, "9efdc05e-0e3f-4d87-8c24-468f6c6cebd0");
        assert_eq!((status.short_id(), status.term, status.election_timer, status.log), ("551c", 2, 1000, (2, 7)));
        assert!(status.is_member() && status.is_leader());
        assert_eq!((status.unapplied, status.disconnections), (1, 1));
        assert_eq!((status.inbound.len(), status.outbound.len()), (2, 2));
        assert_eq!((status.quorum(), status.alive(3000)), (3, 3));
        let lost = &status.servers[0];
        assert_eq!((lost.id.as_str(), lost.match_index, lost.silent_ms), ("37af", Some(5), Some(5196)));
        assert!(status.servers[2].this && status.servers[2].silent_ms.is_none());
    }

    #[test]
    fn other_text_gives_an_empty_status() {
        for text in ["", "no such database", "a: b\nServers:\n    x\n    y (z\n", "Log: [1\nTerm: many"] {
            let status = ClusterStatus::parse(text);
            assert!(!status.is_member() && status.servers.is_empty(), "{text}");
        }
    }
}
