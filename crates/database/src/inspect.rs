//! The state of all members, as clients and the local server see it: `ovnkube db status`.

use std::path::Path;
use std::time::Duration;

use ovsdb::client::{Client, Config, Remote, TlsFiles};
use serde::Serialize;

use crate::assess;
use crate::control::command;
use crate::finding::{FindingKind, Severity};
use crate::kind::Kind;
use crate::manager_status::ManagerStatus;
use crate::status::ClusterStatus;

/// A server that does not answer within this time is shown as unreachable.
const LIMIT: Duration = Duration::from_secs(5);

/// One member as a client sees it: from a connection to its client port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// As clients write it, e.g. `ssl:192.0.2.1:6641`.
    pub remote: String,
    /// Whether it replied within five seconds; it may still have no quorum.
    pub reachable: bool,
    /// Why it is not reachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it is in contact with a quorum.
    pub connected: bool,
    /// Whether it claims to lead; after a partition, two members may for a moment.
    pub leader: bool,
    /// Cluster ID; none for a standalone server, or if it did not reply.
    pub cluster: Option<String>,
    /// Server ID in full; none if it did not reply.
    pub server: Option<String>,
    /// Raft index of the last entry that it has.
    pub index: Option<i64>,
    /// Raft entries behind the most advanced member.
    pub lag: Option<i64>,
}

/// What `ovnkube db status` shows of one database.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseReport {
    /// Schema name, e.g. `OVN_Northbound`.
    pub database: &'static str,
    /// In the order of the remotes, unreachable ones included.
    pub members: Vec<Member>,
    /// `cluster/status` of the server on this host; none if none replies.
    pub local: Option<ClusterStatus>,
    /// Clients of the server on this host, its manager included.
    pub clients: Option<u64>,
    /// What the manager on this host knows, also while its server does not run; none without one.
    pub manager: Option<ManagerStatus>,
    /// One sentence each, with the remedy; any makes the command fail.
    pub problems: Vec<String>,
    /// Findings that do not make the command fail: warnings and advice.
    pub notes: Vec<String>,
}

impl DatabaseReport {
    /// Whether there is no problem; notes do not count.
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Asks these servers in parallel; each has five seconds. One that does not reply is in the result, with its error.
pub async fn ask_all(kind: Kind, remotes: &[Remote], tls: Option<&TlsFiles>) -> Vec<Member> {
    let asked: Vec<_> = remotes.iter().map(|remote| tokio::spawn(ask(kind, remote.clone(), tls.cloned()))).collect();
    let mut members = Vec::new();
    for (task, remote) in asked.into_iter().zip(remotes) {
        members.push(task.await.unwrap_or_else(|error| unreachable(remote, error.to_string())));
    }
    members
}

/// Asks all servers of a database, and reads what only the server and the manager of this host know.
pub async fn inspect(kind: Kind, remotes: &[Remote], tls: Option<&TlsFiles>, run_directory: &Path) -> DatabaseReport {
    let members = ask_all(kind, remotes, tls).await;
    let control = kind.control_socket(run_directory);
    let ask = async |name: &str, arguments: &[&str]| command(&control, name, arguments, LIMIT).await.ok();
    let local = Local {
        server: ask("cluster/status", &[kind.schema()]).await.map(|text| ClusterStatus::parse(&text)),
        clients: ask("memory/show", &[]).await.as_deref().and_then(sessions),
        manager: ManagerStatus::read(kind, run_directory),
        manager_stale_for: ManagerStatus::stale_for(kind, run_directory),
    };
    assemble(kind, members, local)
}

#[derive(Debug, Default)]
struct Local {
    server: Option<ClusterStatus>,
    clients: Option<u64>,
    manager: Option<ManagerStatus>,
    manager_stale_for: Option<Duration>,
}

/// The number of clients in `memory/show`: `cells:4 monitors:1 sessions:2`.
fn sessions(memory: &str) -> Option<u64> {
    let sessions = memory.split_whitespace().find_map(|word| word.strip_prefix("sessions:"));
    // Counters that are zero are left out.
    sessions.map_or(Some(0), |number| number.parse().ok())
}

/// Computes lags and problems. Pure.
fn assemble(kind: Kind, mut members: Vec<Member>, local: Local) -> DatabaseReport {
    let furthest = members.iter().filter_map(|member| member.index).max();
    for member in &mut members {
        member.lag = furthest.zip(member.index).map(|(furthest, index)| furthest - index);
    }
    let mut problems = Vec::new();
    let ids = members.iter().filter_map(|member| member.cluster.as_deref());
    let clusters: std::collections::BTreeSet<&str> = ids.collect();
    if clusters.len() > 1 {
        let list: Vec<&str> = clusters.into_iter().collect();
        problems.push(format!(
            "members belong to different clusters ({}); ConfigMap ovnkube-db names the right one; check the volumes of the others",
            list.join(", ")
        ));
    }
    // The server of this host answers even if it cannot be reached over the network, e.g. with a wrong certificate.
    let leads_here = local.server.as_ref().is_some_and(|server| server.is_member() && server.has_leader());
    if !members.iter().any(|member| member.leader) {
        problems.push(match (leads_here, members.iter().any(|member| member.reachable)) {
            (true, _) => "the database has a leader, according to the server of this host, but it cannot be asked: correct what the \
                          members below report (address, certificate); the data is not affected"
                .into(),
            (false, true) => "no member leads: nothing can be written; start a majority of the members, or, if their volumes are \
                              lost, `ovnkube db restore` or `rebuild`"
                .into(),
            (false, false) => "no member can be asked: correct what the members below report; `restore` and `rebuild` are only for \
                               members whose volumes are lost"
                .into(),
        });
    }
    for member in members.iter().filter(|member| !member.connected) {
        let why = member.error.as_deref().unwrap_or("it is not in contact with a quorum");
        problems.push(format!("{} is not a working member: {why}", member.remote));
    }
    // What only the leader's server knows.
    let local_findings = local.server.iter().flat_map(assess::cluster);
    problems.extend(local_findings.filter(|finding| finding.kind != FindingKind::NoQuorum).map(|it| it.message));
    let mut notes = Vec::new();
    match (&local.manager, local.manager_stale_for) {
        (Some(_), Some(age)) => problems.push(format!(
            "the manager of the member on this host has reported nothing for {} s: it hangs or does not run; restart its pod",
            age.as_secs()
        )),
        (Some(manager), None) => {
            for finding in &manager.findings {
                let line = format!("{}: {} (since {})", finding.name.name(), finding.message, finding.since);
                match finding.severity {
                    Severity::Advice | Severity::Warning => notes.push(line),
                    // The server's own status, above, is newer.
                    Severity::Error if matches!(finding.name, FindingKind::NoQuorum | FindingKind::QuorumAtRisk) => {}
                    Severity::Error => problems.push(line),
                }
            }
        }
        (None, _) => {}
    }
    DatabaseReport {
        database: kind.schema(),
        members,
        local: local.server,
        clients: local.clients,
        manager: local.manager,
        problems,
        notes,
    }
}

fn unreachable(remote: &Remote, error: String) -> Member {
    Member {
        remote: remote.to_string(),
        reachable: false,
        error: Some(error),
        connected: false,
        leader: false,
        cluster: None,
        server: None,
        index: None,
        lag: None,
    }
}

async fn ask(kind: Kind, remote: Remote, tls: Option<TlsFiles>) -> Member {
    let mut config = Config::new(vec![remote.clone()], "_Server");
    config.tls = tls;
    config.leader_only = false;
    config = config.monitor(ovsdb::client::TableMonitor::new("Database"));
    let client = Client::start(config);
    if let Err(error) = client.connected(LIMIT).await {
        let cause = client.status().borrow().last_error.clone();
        return unreachable(&remote, cause.unwrap_or_else(|| error.to_string()));
    }
    let snapshot = client.snapshot();
    let rows = snapshot.table("Database").into_iter().flat_map(ovsdb::replica::Table::iter);
    let Some(row) = rows.into_iter().find(|row| row.text("name").as_deref() == Some(kind.schema())) else {
        return unreachable(&remote, format!("the server does not have database {}", kind.schema()));
    };
    let id = |column: &str| row.get(column).filter(|id| !id.is_empty()).map(|id| id.to_string());
    let clustered = row.text("model").as_deref() == Some("clustered");
    Member {
        remote: remote.to_string(),
        reachable: true,
        error: None,
        connected: row.boolean("connected").unwrap_or(false),
        // A standalone server has no other to follow.
        leader: row.boolean("leader").unwrap_or(!clustered),
        cluster: id("cid"),
        server: id("sid"),
        index: row.integer("index"),
        lag: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager_status::ReportedFinding;

    fn member(remote: &str, cluster: &str, leader: bool, index: i64) -> Member {
        Member {
            remote: remote.into(),
            reachable: true,
            error: None,
            connected: true,
            leader,
            cluster: Some(cluster.into()),
            server: None,
            index: Some(index),
            lag: None,
        }
    }

    #[test]
    fn lag_is_measured_against_the_furthest_member() {
        let report =
            assemble(Kind::Northbound, vec![member("a", "1", true, 9), member("b", "1", false, 7)], Local::default());
        assert_eq!(report.members.iter().map(|member| member.lag).collect::<Vec<_>>(), [Some(0), Some(2)]);
        assert!(report.is_healthy(), "{:?}", report.problems);
    }

    #[test]
    fn problems_are_named() {
        let remote: Remote = "tcp:192.0.2.1:6641".parse().unwrap();
        let members =
            vec![member("a", "1", false, 9), member("b", "2", false, 7), unreachable(&remote, "refused".into())];
        let problems = assemble(Kind::Northbound, members, Local::default()).problems.join("\n");
        for part in
            ["different clusters (1, 2)", "no member leads", "tcp:192.0.2.1:6641 is not a working member: refused"]
        {
            assert!(problems.contains(part), "{problems}");
        }
        // With a wrong certificate, the database is not reported as lost.
        let unknown = || vec![unreachable(&remote, "certificate".into())];
        let none = assemble(Kind::Northbound, unknown(), Local::default()).problems.join("\n");
        assert!(none.contains("no member can be asked"), "{none}");
        let status =
            ClusterStatus { status: "cluster member".into(), leader: "self".into(), ..ClusterStatus::default() };
        let local = Local { server: Some(status), ..Local::default() };
        let here = assemble(Kind::Northbound, unknown(), local).problems.join("\n");
        assert!(here.contains("the database has a leader") && !here.contains("rebuild"), "{here}");
    }

    #[test]
    fn findings_of_the_manager_are_shown_while_no_server_runs() {
        let finding = |name: FindingKind| ReportedFinding {
            name,
            severity: name.severity(),
            message: "why; remedy".into(),
            since: "2026-11-17T10:00:00Z".into(),
        };
        let findings = vec![finding(FindingKind::ForeignCluster), finding(FindingKind::KnownRaftBugs)];
        let manager = Some(ManagerStatus { findings, ..ManagerStatus::default() });
        let members = || vec![member("a", "1", true, 9)];
        let report = assemble(Kind::Northbound, members(), Local { manager: manager.clone(), ..Local::default() });
        assert_eq!(report.problems, ["ForeignCluster: why; remedy (since 2026-11-17T10:00:00Z)"]);
        assert_eq!(report.notes.len(), 1, "a note is not a problem");
        let stale = Local { manager, manager_stale_for: Some(Duration::from_secs(99)), ..Local::default() };
        let report = assemble(Kind::Northbound, members(), stale);
        assert!(report.problems[0].contains("has reported nothing for 99 s"), "{:?}", report.problems);
        assert_eq!(sessions("cells:4 monitors:1 sessions:2\n"), Some(2));
    }
}
