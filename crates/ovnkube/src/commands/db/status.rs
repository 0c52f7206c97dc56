//! `ovnkube db status`: members, roles, lag, disks and clients, and what is wrong.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use console::table;
use database::Kind;
use database::inspect::{DatabaseReport, inspect};
use database::manager_status::ManagerStatus;
use database::status::ClusterStatus;

use super::status_table::as_text;
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
                let kubeconfig = kubeconfig.as_deref();
                reports.push(inspect(*kind, &remotes, access.tls.as_ref(), &status.run_dir, kubeconfig).await);
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
        report.local.iter_mut().for_each(forget_silence);
        report.manager.iter_mut().for_each(forget_measurements);
        report.members.iter_mut().filter_map(|member| member.details.as_mut()).for_each(forget_measurements);
    }
    Ok(serde_json::to_string(&reports)?)
}

fn forget_measurements(manager: &mut ManagerStatus) {
    (manager.resident_bytes, manager.cpu_percent, manager.disk_free_bytes) = (None, None, None);
    manager.raft.iter_mut().for_each(forget_silence);
}

fn forget_silence(raft: &mut ClusterStatus) {
    for server in &mut raft.servers {
        server.silent_ms = None;
    }
}
