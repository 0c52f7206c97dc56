//! `ovnkube db status` as text: who leads and who follows, what each member has and uses, and what is wrong.

use console::table::{self, Cell, Tone};
use database::inspect::{DatabaseReport, Member};
use database::manager_status::ManagerStatus;

pub(super) fn as_text(report: &DatabaseReport, colour: bool) -> String {
    let cluster = report.members.iter().find_map(|member| member.cluster.as_deref()).unwrap_or("standalone or unknown");
    let timers =
        report.members.iter().filter_map(|member| Some(member.details.as_ref()?.raft.as_ref()?.election_timer));
    let timer = timers.max().map_or_else(String::new, |timer| format!(", election timer {timer} ms"));
    let mut text = format!("{}  cluster {cluster}{timer}\n", report.database);
    let rows: Vec<_> = report.members.iter().map(role_row).collect();
    text += &table::render(["MEMBER", "ROLE", "SINCE", "STATE", "SERVER", "TERM", "INDEX", "LAG"], rows, colour);
    let known: Vec<_> =
        report.members.iter().filter_map(|member| Some(use_row(&member.remote, member.details.as_ref()?))).collect();
    if !known.is_empty() {
        let headings = [
            "MEMBER",
            "LOG",
            "PENDING",
            "CLIENTS",
            "FILE",
            "LAST WRITE",
            "DISK FREE",
            "MEMORY",
            "CPU",
            "SCHEMA",
            "OPEN VSWITCH",
        ];
        text += &format!("\n{}", table::render(headings, known, colour));
    }
    for member in &report.members {
        if let Some(error) = &member.details_error {
            text += &format!("no details of {}: {error}\n", member.remote);
        }
    }
    for problem in &report.problems {
        text += &format!("problem: {problem}\n");
    }
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    text
}

fn role_row(member: &Member) -> [Cell; 8] {
    let role = member.role.as_deref();
    let state = match (member.reachable, member.connected, role) {
        (false, ..) => Cell::new("unreachable", Tone::Bad),
        (true, true, _) => Cell::new("ok", Tone::Good),
        (true, false, Some("waiting")) => Cell::new("not replicating", Tone::Bad),
        (true, false, _) => Cell::new("no quorum", Tone::Bad),
    };
    let server = member.server.as_deref().and_then(|id| id.get(..4));
    [
        Cell::plain(&member.remote),
        Cell::plain(role.unwrap_or("-")),
        Cell::plain(member.since.as_deref().unwrap_or("-")),
        state,
        Cell::plain(server.unwrap_or("-")),
        or_dash(member.term),
        or_dash(member.index),
        or_dash(member.lag),
    ]
}

fn use_row(remote: &str, details: &ManagerStatus) -> [Cell; 11] {
    let raft = details.raft.as_ref();
    let megabytes = |bytes: Option<u64>| or_dash(bytes.map(|bytes| format!("{:.1} MB", bytes as f64 / 1e6)));
    [
        Cell::plain(remote),
        or_dash(raft.map(|raft| format!("[{}, {})", raft.log.0, raft.log.1))),
        or_dash(raft.map(|raft| format!("{} + {}", raft.uncommitted, raft.unapplied))),
        or_dash(details.clients),
        megabytes(details.file_bytes),
        or_dash(details.last_write.as_deref()),
        megabytes(details.disk_free_bytes),
        megabytes(details.resident_bytes),
        or_dash(details.cpu_percent.map(|percent| format!("{percent} %"))),
        or_dash(details.schema.as_deref()),
        or_dash(details.server_version.as_deref()),
    ]
}

fn or_dash(value: Option<impl ToString>) -> Cell {
    Cell::plain(value.map_or_else(|| "-".to_owned(), |value| value.to_string()))
}

#[cfg(test)]
mod tests {
    use database::status::ClusterStatus;

    use super::*;

    fn report(members: Vec<Member>, problems: &[&str], notes: &[&str]) -> DatabaseReport {
        DatabaseReport {
            database: "OVN_Northbound",
            members,
            local: None,
            clients: None,
            manager: None,
            problems: problems.iter().map(|text| (*text).to_owned()).collect(),
            notes: notes.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    fn details(raft: Option<ClusterStatus>) -> ManagerStatus {
        ManagerStatus {
            raft,
            clients: Some(6),
            file_bytes: Some(1_310_000),
            last_write: Some("2026-11-17T10:12:03Z".into()),
            disk_free_bytes: Some(40_960_000_000),
            resident_bytes: Some(14_200_000),
            cpu_percent: Some(1),
            schema: Some("7.11.0".into()),
            server_version: Some("3.5.0".into()),
            ..ManagerStatus::default()
        }
    }

    fn raft_member(host: u8, role: &str, index: u64) -> Member {
        let raft = ClusterStatus { term: 2, election_timer: 1000, log: (2, index + 1), ..ClusterStatus::default() };
        Member {
            remote: format!("ssl:10.0.0.{host}:6641"),
            reachable: true,
            connected: true,
            leader: role == "leader",
            cluster: Some("9efdc05e-0e3f-4d87-8c24-468f6c6cebd0".into()),
            server: Some("551ce763-4a79-41fe-a2f9-4c4addc31671".into()),
            index: i64::try_from(index).ok(),
            lag: i64::try_from(1204 - index).ok(),
            role: Some(role.into()),
            since: Some("2026-11-17T10:00:02Z".into()),
            term: Some(2),
            details: Some(details(Some(raft))),
            ..Member::default()
        }
    }

    #[test]
    fn each_raft_member_is_shown_in_full_and_a_silent_one_with_the_reason() {
        let silent = Member {
            remote: "ssl:10.0.0.3:6641".into(),
            error: Some("connection refused".into()),
            details_error: Some("its manager cannot be reached at 10.0.0.3:9104: connection refused".into()),
            ..Member::default()
        };
        let members = vec![raft_member(1, "leader", 1204), raft_member(2, "follower", 1202), silent];
        let problem = "ssl:10.0.0.3:6641 is not a working member: connection refused";
        let text = as_text(&report(members, &[problem], &["KnownRaftBugs: upgrade"]), false);
        let expected = "\
OVN_Northbound  cluster 9efdc05e-0e3f-4d87-8c24-468f6c6cebd0, election timer 1000 ms
MEMBER             ROLE      SINCE                 STATE        SERVER  TERM  INDEX  LAG
ssl:10.0.0.1:6641  leader    2026-11-17T10:00:02Z  ok           551c    2     1204   0
ssl:10.0.0.2:6641  follower  2026-11-17T10:00:02Z  ok           551c    2     1202   2
ssl:10.0.0.3:6641  -         -                     unreachable  -       -     -      -

MEMBER             LOG        PENDING  CLIENTS  FILE    LAST WRITE            DISK FREE   MEMORY   CPU  SCHEMA  OPEN VSWITCH
ssl:10.0.0.1:6641  [2, 1205)  0 + 0    6        1.3 MB  2026-11-17T10:12:03Z  40960.0 MB  14.2 MB  1 %  7.11.0  3.5.0
ssl:10.0.0.2:6641  [2, 1203)  0 + 0    6        1.3 MB  2026-11-17T10:12:03Z  40960.0 MB  14.2 MB  1 %  7.11.0  3.5.0
no details of ssl:10.0.0.3:6641: its manager cannot be reached at 10.0.0.3:9104: connection refused
problem: ssl:10.0.0.3:6641 is not a working member: connection refused
note: KnownRaftBugs: upgrade
";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_active_server_is_shown_with_its_backups() {
        let member = |host: u8, role: &str, connected| Member {
            remote: format!("tcp:10.0.0.{host}:6641"),
            reachable: true,
            connected,
            role: Some(role.into()),
            since: Some("2026-11-17T10:00:02Z".into()),
            details: Some(ManagerStatus { clients: None, ..details(None) }),
            ..Member::default()
        };
        let members = vec![member(1, "active", true), member(2, "backup", true), member(3, "waiting", false)];
        let expected = "\
OVN_Northbound  cluster standalone or unknown
MEMBER             ROLE     SINCE                 STATE            SERVER  TERM  INDEX  LAG
tcp:10.0.0.1:6641  active   2026-11-17T10:00:02Z  ok               -       -     -      -
tcp:10.0.0.2:6641  backup   2026-11-17T10:00:02Z  ok               -       -     -      -
tcp:10.0.0.3:6641  waiting  2026-11-17T10:00:02Z  not replicating  -       -     -      -

MEMBER             LOG  PENDING  CLIENTS  FILE    LAST WRITE            DISK FREE   MEMORY   CPU  SCHEMA  OPEN VSWITCH
tcp:10.0.0.1:6641  -    -        -        1.3 MB  2026-11-17T10:12:03Z  40960.0 MB  14.2 MB  1 %  7.11.0  3.5.0
tcp:10.0.0.2:6641  -    -        -        1.3 MB  2026-11-17T10:12:03Z  40960.0 MB  14.2 MB  1 %  7.11.0  3.5.0
tcp:10.0.0.3:6641  -    -        -        1.3 MB  2026-11-17T10:12:03Z  40960.0 MB  14.2 MB  1 %  7.11.0  3.5.0
";
        assert_eq!(as_text(&report(members, &[], &[]), false), expected);
    }

    #[test]
    fn without_any_details_there_is_one_table() {
        let member = Member { details_error: Some("refused".into()), details: None, ..raft_member(1, "leader", 1204) };
        let text = as_text(&report(vec![member], &[], &[]), false);
        assert!(text.lines().count() == 4 && text.ends_with("no details of ssl:10.0.0.1:6641: refused\n"), "{text}");
    }
}
