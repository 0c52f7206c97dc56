//! The state of all members, as clients, the local server and the members' managers see it: `ovnkube db status`.

use std::path::Path;
use std::time::Duration;

use ovsdb::client::{Client, Config, Remote, TlsFiles};
use serde::Serialize;

use crate::assess;
use crate::control::command;
use crate::details;
use crate::finding::{FindingKind, Severity};
use crate::kind::Kind;
use crate::manager_status::{KnownPeers, ManagerStatus};
use crate::status::ClusterStatus;

/// A server that does not answer within this time is shown as unreachable.
const LIMIT: Duration = Duration::from_secs(5);

/// One member: as a client sees it, from a connection to its client port, and as its manager reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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
    /// `leader`, `follower`, `active`, `backup`, …; none if neither the server nor its manager replied.
    pub role: Option<String>,
    /// Since when it has this role, as its manager saw it.
    pub since: Option<String>,
    /// Raft term; none if its manager did not reply.
    pub term: Option<u64>,
    /// What its manager reports, some seconds old.
    pub details: Option<ManagerStatus>,
    /// Why there are no details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details_error: Option<String>,
}

/// What `ovnkube db status` shows of one database.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseReport {
    /// Schema name, e.g. `OVN_Northbound`.
    pub database: &'static str,
    /// In the order of the remotes, unreachable ones included; then backups, which serve no clients.
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

/// Asks all servers of a database and their managers, and reads what only the server and the manager of this host know.
pub async fn inspect(
    kind: Kind,
    remotes: &[Remote],
    tls: Option<&TlsFiles>,
    run_directory: &Path,
    kubeconfig: Option<&Path>,
) -> DatabaseReport {
    let control = kind.control_socket(run_directory);
    let ask = async |name: &str, arguments: &[&str]| command(&control, name, arguments, LIMIT).await.ok();
    let mut local = Local {
        server: ask("cluster/status", &[kind.schema()]).await.map(|text| ClusterStatus::parse(&text)),
        clients: ask("memory/show", &[]).await.as_deref().and_then(sessions),
        manager: ManagerStatus::read(kind, run_directory),
        manager_stale_for: ManagerStatus::stale_for(kind, run_directory),
        peers_unknown: None,
    };
    let peers = local.manager.as_ref().map(|manager| manager.peers.clone()).unwrap_or_default();
    let known = |peers: KnownPeers| async move { details::known_hosts(&peers, kubeconfig).await };
    let manager = local.manager.as_ref();
    let (mut asked, reports, known) =
        tokio::join!(ask_all(kind, remotes, tls), details::read_all(kind, remotes, tls, manager), known(peers));
    let known = known.unwrap_or_else(|error| {
        local.peers_unknown = Some(error);
        Vec::new()
    });
    let unlisted = details::unlisted(kind, &known, &local, &asked, remotes);
    let unlisted_reports = details::read_all(kind, &unlisted, tls, local.manager.as_ref()).await;
    for (member, report) in asked.iter_mut().zip(reports) {
        member.add_details(report, &local);
    }
    let backup = |(remote, report): (&Remote, Result<ManagerStatus, String>)| {
        let mut member = Member { remote: remote.to_string(), ..Member::default() };
        member.add_details(report, &local);
        member.reachable = member.details.is_some();
        member.connected = matches!(member.role.as_deref(), Some("backup" | "active" | "leader" | "follower"));
        member
    };
    let backups = unlisted.iter().zip(unlisted_reports).map(backup).collect();
    assemble(kind, asked, backups, local)
}

/// What is known on this host.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) server: Option<ClusterStatus>,
    pub(crate) clients: Option<u64>,
    pub(crate) manager: Option<ManagerStatus>,
    pub(crate) manager_stale_for: Option<Duration>,
    /// Why the members are not known that clients do not know.
    pub(crate) peers_unknown: Option<String>,
}

impl Local {
    /// Server ID of the raft member of this host.
    fn server_id(&self) -> Option<&str> {
        let running = self.server.as_ref().map(|server| server.server.as_str());
        running.or_else(|| Some(self.manager.as_ref()?.raft.as_ref()?.server.as_str())).filter(|id| !id.is_empty())
    }

    /// Whether one of these members is that of this host, by whatever name it is known.
    pub(crate) fn is_among(&self, members: &[Member]) -> bool {
        self.server_id().is_some_and(|id| members.iter().any(|member| member.server.as_deref() == Some(id)))
    }
}

impl Member {
    /// Adds what its manager reports. For the member of this host, its server's own reply is newer.
    fn add_details(&mut self, report: Result<ManagerStatus, String>, local: &Local) {
        let own = local.manager.as_ref().is_some_and(|manager| report.as_ref().is_ok_and(|report| report == manager))
            || local.server.is_some() && local.server_id() == self.server.as_deref();
        let mut report = match (report, own) {
            (Ok(report), _) => report,
            // Its manager does not listen, or none runs: what the server says is enough.
            (Err(_), true) => local.manager.clone().unwrap_or_default(),
            (Err(error), false) => {
                self.details_error = Some(error);
                ManagerStatus::default()
            }
        };
        if own {
            if let Some(server) = &local.server {
                report.set_raft(server, kubernetes::timestamp);
            }
            report.clients = local.clients.or(report.clients);
        }
        let raft = report.raft.as_ref();
        self.term = raft.map(|raft| raft.term);
        // As if its server had said so.
        let applied = raft.and_then(|raft| i64::try_from(raft.log.1.checked_sub(1 + raft.unapplied)?).ok());
        self.index = self.index.or(applied);
        self.server = self.server.take().or_else(|| raft.map(|raft| raft.server.clone()).filter(|id| !id.is_empty()));
        let seen = match (self.reachable && self.connected, self.cluster.is_some(), self.leader) {
            (true, true, true) => Some("leader"),
            (true, true, false) => Some("follower"),
            (true, false, true) if report.role.is_none() => Some("leader"),
            _ => None,
        };
        // Newer than the report.
        self.role = seen.map(str::to_owned).or_else(|| report.role.clone());
        self.since = report.since.clone().filter(|_| self.role == report.role);
        self.details = self.details_error.is_none().then_some(report);
    }
}

/// The number of clients in `memory/show`: `cells:4 monitors:1 sessions:2`.
pub(crate) fn sessions(memory: &str) -> Option<u64> {
    let sessions = memory.split_whitespace().find_map(|word| word.strip_prefix("sessions:"));
    // Counters that are zero are left out.
    sessions.map_or(Some(0), |number| number.parse().ok())
}

/// Computes lags, problems and notes. Pure.
fn assemble(kind: Kind, mut members: Vec<Member>, mut backups: Vec<Member>, local: Local) -> DatabaseReport {
    let furthest = members.iter().chain(&backups).filter_map(|member| member.index).max();
    for member in members.iter_mut().chain(&mut backups) {
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
    members.append(&mut backups);
    notes.extend(members.iter().filter(|member| !is_own(member, &local)).flat_map(notes_of));
    if let Some(error) = &local.peers_unknown {
        notes.push(format!("backups are not listed: the API does not name the members: {error}"));
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

fn is_own(member: &Member, local: &Local) -> bool {
    let host = |status: &ManagerStatus| status.host.clone();
    let own = local.manager.as_ref().map(host).filter(|host| !host.is_empty());
    own.is_some() && own == member.details.as_ref().map(host)
}

/// What another member reports. Only what this host and clients see makes the command fail.
fn notes_of(member: &Member) -> Vec<String> {
    let Some(details) = &member.details else { return Vec::new() };
    let waits = details.waiting_for.iter().map(|why| format!("{}: {why}", member.remote));
    let findings = details.findings.iter().filter(|finding| finding.severity != Severity::Advice);
    let findings =
        findings.map(|it| format!("{}: {}: {} (since {})", member.remote, it.name.name(), it.message, it.since));
    waits.chain(findings).collect()
}

fn unreachable(remote: &Remote, error: String) -> Member {
    Member { remote: remote.to_string(), error: Some(error), ..Member::default() }
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
        ..Member::default()
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
            connected: true,
            leader,
            cluster: Some(cluster.into()),
            index: Some(index),
            ..Member::default()
        }
    }

    fn raft(members: Vec<Member>, local: Local) -> DatabaseReport {
        assemble(Kind::Northbound, members, Vec::new(), local)
    }

    #[test]
    fn lag_is_measured_against_the_furthest_member() {
        let report = raft(vec![member("a", "1", true, 9), member("b", "1", false, 7)], Local::default());
        assert_eq!(report.members.iter().map(|member| member.lag).collect::<Vec<_>>(), [Some(0), Some(2)]);
        assert!(report.is_healthy(), "{:?}", report.problems);
    }

    #[test]
    fn problems_are_named() {
        let remote: Remote = "tcp:192.0.2.1:6641".parse().unwrap();
        let members =
            vec![member("a", "1", false, 9), member("b", "2", false, 7), unreachable(&remote, "refused".into())];
        let problems = raft(members, Local::default()).problems.join("\n");
        for part in
            ["different clusters (1, 2)", "no member leads", "tcp:192.0.2.1:6641 is not a working member: refused"]
        {
            assert!(problems.contains(part), "{problems}");
        }
        // With a wrong certificate, the database is not reported as lost.
        let unknown = || vec![unreachable(&remote, "certificate".into())];
        let none = raft(unknown(), Local::default()).problems.join("\n");
        assert!(none.contains("no member can be asked"), "{none}");
        let status =
            ClusterStatus { status: "cluster member".into(), leader: "self".into(), ..ClusterStatus::default() };
        let local = Local { server: Some(status), ..Local::default() };
        let here = raft(unknown(), local).problems.join("\n");
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
        let report = raft(members(), Local { manager: manager.clone(), ..Local::default() });
        assert_eq!(report.problems, ["ForeignCluster: why; remedy (since 2026-11-17T10:00:00Z)"]);
        assert_eq!(report.notes.len(), 1, "a note is not a problem");
        let stale = Local { manager, manager_stale_for: Some(Duration::from_secs(99)), ..Local::default() };
        let report = raft(members(), stale);
        assert!(report.problems[0].contains("has reported nothing for 99 s"), "{:?}", report.problems);
        assert_eq!(sessions("cells:4 monitors:1 sessions:2\n"), Some(2));
    }

    fn report_of(host: &str, role: &str) -> ManagerStatus {
        let raft = ClusterStatus { term: 3, log: (2, 9), ..ClusterStatus::default() };
        let (role, since) = (Some(role.to_owned()), Some("2026-11-17T10:00:00Z".to_owned()));
        ManagerStatus { host: host.into(), role, since, raft: Some(raft), ..ManagerStatus::default() }
    }

    #[test]
    fn details_of_a_manager_do_not_overrule_what_its_server_says_now() {
        let mut changed = member("b", "1", true, 9);
        changed.add_details(Ok(report_of("b", "follower")), &Local::default());
        assert_eq!((changed.role.as_deref(), &changed.since, changed.term), (Some("leader"), &None, Some(3)));
        let mut same = member("b", "1", true, 9);
        same.add_details(Ok(report_of("b", "leader")), &Local::default());
        assert_eq!(same.since.as_deref(), Some("2026-11-17T10:00:00Z"));
        // A server that clients do not reach is described by its manager, and the reason is still there.
        let remote: Remote = "tcp:192.0.2.1:6641".parse().unwrap();
        let mut silent = unreachable(&remote, "refused".into());
        silent.add_details(Ok(report_of("b", "candidate")), &Local::default());
        assert_eq!((silent.role.as_deref(), silent.index, silent.reachable), (Some("candidate"), Some(8), false));
        let mut dead = unreachable(&remote, "refused".into());
        dead.add_details(Err("no route".into()), &Local::default());
        assert_eq!((&dead.details, dead.details_error.as_deref(), &dead.role), (&None, Some("no route"), &None));
    }

    #[test]
    fn the_member_of_this_host_is_described_by_its_server_also_without_a_manager() {
        let server = ClusterStatus {
            server: "id".into(),
            status: "cluster member".into(),
            role: "leader".into(),
            leader: "self".into(),
            term: 7,
            ..ClusterStatus::default()
        };
        let local = Local { server: Some(server), clients: Some(5), ..Local::default() };
        let mut own = Member { server: Some("id".into()), ..member("a", "1", true, 9) };
        own.add_details(Err("no manager".into()), &local);
        let details = own.details.unwrap();
        assert_eq!((own.term, details.clients, own.details_error), (Some(7), Some(5), None));
    }

    #[test]
    fn what_other_members_report_is_a_note() {
        let finding = ReportedFinding {
            name: FindingKind::DiskAlmostFull,
            severity: Severity::Error,
            message: "why; remedy".into(),
            since: "then".into(),
        };
        let mut report = report_of("b", "waiting");
        (report.findings, report.waiting_for) = (vec![finding], Some("no server is active".into()));
        let mut backup = Member { remote: "b".into(), ..Member::default() };
        backup.add_details(Ok(report), &Local::default());
        let manager = Some(report_of("a", "active"));
        let local = Local { manager, peers_unknown: Some("refused".into()), ..Local::default() };
        let report = assemble(Kind::Northbound, vec![member("a", "1", true, 9)], vec![backup], local);
        assert!(report.is_healthy(), "{:?}", report.problems);
        let expected = [
            "b: no server is active",
            "b: DiskAlmostFull: why; remedy (since then)",
            "backups are not listed: the API does not name the members: refused",
        ];
        assert_eq!((report.notes.as_slice(), report.members.len()), (expected.map(str::to_owned).as_slice(), 2));
    }
}
