//! `ovnkube db status`: members, roles, lag, the local member's disk and clients, and what is wrong.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use console::table::{self, Cell, Tone};
use database::Kind;
use database::inspect::{DatabaseReport, Member, inspect};
use database::manager_status::ManagerStatus;

use crate::cli::{Output, Status};
use crate::commands::{FAILED, checked_settings};
use crate::config::{Config, ConfigArgs};

/// Interval of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(2);
/// Clears a terminal and puts the cursor at its start.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(super) fn run(status: &Status, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    telemetry::init_logs(&config.log_options()?)?;
    let kinds: Vec<Kind> = status.database.map_or_else(|| Kind::BOTH.to_vec(), |name| vec![name.kind()]);
    let accesses = kinds
        .iter()
        .map(|kind| Ok((*kind, checked_settings::database_access(&config, *kind)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let kubeconfig = checked_settings::kubeconfig(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut before = None;
        loop {
            let mut reports = Vec::new();
            for (kind, access) in &accesses {
                let remotes = remotes::resolve(access, kubeconfig.as_deref()).await;
                reports.push(inspect(*kind, &remotes, access.tls.as_ref(), &status.run_dir).await);
            }
            let compared = Some(without_times(&reports)?);
            if compared != before && !write(&as_output(&reports, status)?)? && status.watch {
                return Ok(ExitCode::SUCCESS);
            }
            before = compared;
            if !status.watch {
                let healthy = reports.iter().all(DatabaseReport::is_healthy);
                return Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(FAILED) });
            }
            tokio::time::sleep(WATCH_PERIOD).await;
        }
    })
}

fn as_output(reports: &[DatabaseReport], status: &Status) -> anyhow::Result<String> {
    Ok(match status.output {
        // One document per line, for programs that read them as they come.
        Output::Json if status.watch => format!("{}\n", serde_json::to_string(reports)?),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(reports)?),
        Output::Table => {
            let colour = table::colour();
            let texts: Vec<String> = reports.iter().map(|report| as_text(report, colour)).collect();
            // Without a terminal, each change follows the last one.
            let start = if status.watch && io::stdout().is_terminal() { CLEAR } else { "" };
            format!("{start}{}", texts.join("\n"))
        }
    })
}

/// Writes to stdout; false if its reader is gone.
fn write(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// The reports without what changes although nothing happens.
fn without_times(reports: &[DatabaseReport]) -> anyhow::Result<String> {
    let mut reports = reports.to_vec();
    for report in &mut reports {
        for server in report.local.iter_mut().flat_map(|local| &mut local.servers) {
            server.silent_ms = None;
        }
        if let Some(manager) = &mut report.manager {
            (manager.resident_bytes, manager.cpu_percent, manager.disk_free_bytes) = (None, None, None);
        }
    }
    Ok(serde_json::to_string(&reports)?)
}

fn as_text(report: &DatabaseReport, colour: bool) -> String {
    let cluster = report.members.iter().find_map(|member| member.cluster.as_deref()).unwrap_or("standalone or unknown");
    let mut text = format!("{}  cluster {cluster}\n", report.database);
    let rows: Vec<_> = report.members.iter().map(row).collect();
    text += &table::render(["MEMBER", "ROLE", "STATE", "SERVER", "INDEX", "LAG"], rows, colour);
    if let Some(local) = &report.local {
        let clients = report.clients.map_or_else(String::new, |clients| format!(", {clients} clients"));
        text += &format!(
            "this server: term {}, election timer {} ms, log [{}, {}), {} entries not committed, {} not applied{clients}\n",
            local.term, local.election_timer, local.log.0, local.log.1, local.uncommitted, local.unapplied
        );
    }
    if let Some(manager) = &report.manager {
        text += &manager_line(manager);
    }
    for problem in &report.problems {
        text += &format!("problem: {problem}\n");
    }
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    text
}

fn manager_line(manager: &ManagerStatus) -> String {
    let megabytes = |bytes: Option<u64>| bytes.map(|bytes| format!("{:.1} MB", bytes as f64 / 1e6));
    let text = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    format!(
        "this member: file {}, last write {}, disk free {}, server memory {}, CPU {}, schema {}, Open vSwitch {}\n",
        text(megabytes(manager.file_bytes)),
        text(manager.last_write.clone()),
        text(megabytes(manager.disk_free_bytes)),
        text(megabytes(manager.resident_bytes)),
        text(manager.cpu_percent.map(|percent| format!("{percent} %"))),
        text(manager.schema.clone()),
        text(manager.server_version.clone()),
    )
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
