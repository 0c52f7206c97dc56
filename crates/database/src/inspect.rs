//! The state of all members, as clients and the local server see it: `ovnkube db status`.

use std::path::Path;
use std::time::Duration;

use ovsdb::client::{Client, Config, Remote, TlsFiles, control_command};
use serde::Serialize;
use tokio::time::timeout;

use crate::care::{self, Finding};
use crate::kind::Kind;
use crate::status::ClusterStatus;

/// A server that does not answer within this time is shown as unreachable.
const LIMIT: Duration = Duration::from_secs(5);

/// One member, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Where clients reach it.
    pub remote: String,
    /// Whether it answered.
    pub reachable: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it is in contact with a quorum.
    pub connected: bool,
    /// Whether it leads.
    pub leader: bool,
    /// The cluster ID.
    pub cluster: Option<String>,
    /// The server ID.
    pub server: Option<String>,
    /// Index of the last entry that it has.
    pub index: Option<i64>,
    /// Entries behind the member that is furthest.
    pub lag: Option<i64>,
}

/// One database.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseReport {
    /// Name of the schema.
    pub database: &'static str,
    /// All members.
    pub members: Vec<Member>,
    /// What the server on this host tells; none without one.
    pub local: Option<ClusterStatus>,
    /// What is wrong, with the remedy.
    pub problems: Vec<String>,
}

impl DatabaseReport {
    /// Whether every member is connected, and one leads.
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Asks these servers for their state.
pub async fn ask_all(kind: Kind, remotes: &[Remote], tls: Option<&TlsFiles>) -> Vec<Member> {
    let asked: Vec<_> = remotes.iter().map(|remote| tokio::spawn(ask(kind, remote.clone(), tls.cloned()))).collect();
    let mut members = Vec::new();
    for (task, remote) in asked.into_iter().zip(remotes) {
        members.push(task.await.unwrap_or_else(|error| unreachable(remote, error.to_string())));
    }
    members
}

/// Asks all servers of a database, and the one of this host for what only it tells.
pub async fn inspect(kind: Kind, remotes: &[Remote], tls: Option<&TlsFiles>, run_directory: &Path) -> DatabaseReport {
    let members = ask_all(kind, remotes, tls).await;
    let control = kind.control_socket(run_directory);
    let local = timeout(LIMIT, control_command(&control, "cluster/status", &[kind.schema()])).await;
    let local = local.ok().and_then(Result::ok).map(|text| ClusterStatus::parse(&text));
    judge(kind, members, local)
}

/// Lag and problems of what was seen. Pure.
fn judge(kind: Kind, mut members: Vec<Member>, local: Option<ClusterStatus>) -> DatabaseReport {
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
    if !members.iter().any(|member| member.leader) {
        problems.push(
            "no member leads: nothing can be written; start a majority of the members, or, if their volumes are lost, `ovnkube db restore` or `rebuild`".into(),
        );
    }
    for member in members.iter().filter(|member| !member.connected) {
        let why = member.error.as_deref().unwrap_or("it is not in contact with a quorum");
        problems.push(format!("{} is not a working member: {why}", member.remote));
    }
    // What only the leader's server knows.
    let local_findings = local.iter().flat_map(care::findings);
    problems
        .extend(local_findings.filter(|finding| !matches!(finding, Finding::NoQuorum { .. })).map(|it| it.to_string()));
    DatabaseReport { database: kind.schema(), members, local, problems }
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
        let report = judge(Kind::Northbound, vec![member("a", "1", true, 9), member("b", "1", false, 7)], None);
        assert_eq!(report.members.iter().map(|member| member.lag).collect::<Vec<_>>(), [Some(0), Some(2)]);
        assert!(report.is_healthy(), "{:?}", report.problems);
    }

    #[test]
    fn problems_are_named() {
        let remote: Remote = "tcp:192.0.2.1:6641".parse().unwrap();
        let members =
            vec![member("a", "1", false, 9), member("b", "2", false, 7), unreachable(&remote, "refused".into())];
        let problems = judge(Kind::Northbound, members, None).problems.join("\n");
        for part in
            ["different clusters (1, 2)", "no member leads", "tcp:192.0.2.1:6641 is not a working member: refused"]
        {
            assert!(problems.contains(part), "{problems}");
        }
    }
}
