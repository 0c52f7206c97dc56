//! `ovnkube db status`: members, roles, lag, and what is wrong.

use std::process::ExitCode;

use console::table::{self, Cell, Tone};
use database::Kind;
use database::inspect::{DatabaseReport, Member, inspect};

use crate::cli::{Output, Status};
use crate::commands::{FAILED, agreement};
use crate::config::{Config, ConfigArgs};

pub(super) fn run(status: &Status, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    telemetry::init_logs(&config.log_options()?)?;
    let kinds: Vec<Kind> = status.database.map_or_else(|| Kind::BOTH.to_vec(), |name| vec![name.kind()]);
    let accesses = kinds
        .iter()
        .map(|kind| Ok((*kind, agreement::database_access(&config, *kind)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reports = runtime.block_on(async {
        let mut reports = Vec::new();
        for (kind, access) in &accesses {
            reports.push(inspect(*kind, &access.remotes, access.tls.as_ref(), &status.run_dir).await);
        }
        reports
    });
    match status.output {
        Output::Json => console::print_json(&reports)?,
        Output::Table => {
            let colour = table::colour();
            let texts: Vec<String> = reports.iter().map(|report| as_text(report, colour)).collect();
            console::print(&texts.join("\n"))?;
        }
    }
    let healthy = reports.iter().all(DatabaseReport::is_healthy);
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn as_text(report: &DatabaseReport, colour: bool) -> String {
    let cluster = report.members.iter().find_map(|member| member.cluster.as_deref()).unwrap_or("standalone or unknown");
    let mut text = format!("{}  cluster {cluster}\n", report.database);
    let rows: Vec<_> = report.members.iter().map(row).collect();
    text += &table::render(["MEMBER", "ROLE", "STATE", "SERVER", "INDEX", "LAG"], rows, colour);
    if let Some(local) = &report.local {
        text += &format!(
            "this server: term {}, election timer {} ms, log [{}, {}), {} entries not committed, {} not applied\n",
            local.term, local.election_timer, local.log.0, local.log.1, local.uncommitted, local.unapplied
        );
    }
    for problem in &report.problems {
        text += &format!("problem: {problem}\n");
    }
    text
}

fn row(member: &Member) -> [Cell; 6] {
    let (role, state) = match (member.reachable, member.connected, member.leader) {
        (false, ..) => ("-", Cell::new("unreachable", Tone::Bad)),
        (true, false, _) => ("-", Cell::new("no quorum", Tone::Bad)),
        (true, true, true) => ("leader", Cell::new("ok", Tone::Good)),
        (true, true, false) => ("follower", Cell::new("ok", Tone::Good)),
    };
    let number = |value: Option<i64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let server = member.server.as_deref().and_then(|id| id.get(..4)).unwrap_or("-");
    [
        Cell::plain(&member.remote),
        Cell::plain(role),
        state,
        Cell::plain(server),
        Cell::plain(number(member.index)),
        Cell::plain(number(member.lag)),
    ]
}
