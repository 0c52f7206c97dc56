//! `ovnkube health`, also for exec probes.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use telemetry::Report;

use super::FAILED;
use super::role::Role;
use crate::cli::{Output, Probe, Target};
use crate::config::ConfigArgs;
use crate::http::Request;
use console::table::{self, Cell, Tone};

pub(super) fn run(probe: Probe, target: &Target, output: Output, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let role = Role::find(target, args)?;
    let path = match probe {
        Probe::Readyz => "/readyz",
        Probe::Livez => "/livez",
    };
    let response = role.send(Request { method: "GET", path, accept: "application/json", body: "" })?;
    if !matches!(response.status, 200 | 503) {
        bail!("{} replied to {path} with status {}; hint: check --address", role.address, response.status);
    }
    let report: Report = serde_json::from_str(&response.body)
        .with_context(|| format!("unexpected response of {} to {path}; hint: check --address", role.address))?;
    match output {
        Output::Json => console::print_json(&report)?,
        Output::Table => console::print(&as_table(&report, table::colour()))?,
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn as_table(report: &Report, colour: bool) -> String {
    let state = |ok: bool| {
        if ok { Cell::new("ok", Tone::Good) } else { Cell::new("failed", Tone::Bad) }
    };
    let checks = report.checks.iter();
    let mut rows: Vec<_> =
        checks.map(|check| [Cell::plain(&check.name), state(check.ok), Cell::plain(&check.reason)]).collect();
    rows.push([Cell::plain("(all)"), state(report.ok), Cell::plain("")]);
    table::render(["CONDITION", "STATE", "REASON"], rows, colour)
}
