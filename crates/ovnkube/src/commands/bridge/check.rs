//! `ovnkube bridge check`.

use std::process::ExitCode;

use bridge::{Checked, Form, Severity, Violation};
use console::table::{self, Cell, Tone};
use serde::Serialize;

use crate::cli::{BridgeCheck, Output};
use crate::commands::FAILED;

#[derive(Serialize)]
struct Report {
    valid: bool,
    files: Vec<FileReport>,
}

#[derive(Serialize)]
struct FileReport {
    file: String,
    /// `install-config`, `nmstate`, or none if the file is not YAML.
    form: Option<&'static str>,
    hosts: Vec<String>,
    violations: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    code: &'static str,
    severity: &'static str,
    line: usize,
    column: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    reason: String,
    remedy: &'static str,
}

pub(super) fn run(check: &BridgeCheck) -> anyhow::Result<ExitCode> {
    let mut report = Report { valid: true, files: Vec::new() };
    for file in &check.files {
        let checked = bridge::check(&super::read(file)?, &check.machine_networks);
        report.valid &= checked.is_valid();
        report.files.push(file_report(file, checked));
    }
    match check.output {
        Output::Json => console::print_json(&report)?,
        Output::Table => console::print(&as_text(&report, table::colour()))?,
    }
    Ok(if report.valid { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn file_report(file: &str, checked: Checked) -> FileReport {
    let form = checked.form.map(|form| match form {
        Form::InstallConfig => "install-config",
        Form::NmState => "nmstate",
    });
    let hosts = checked.hosts.into_iter().map(|host| host.name).collect();
    FileReport { file: file.to_owned(), form, hosts, violations: checked.violations.into_iter().map(row).collect() }
}

fn row(violation: Violation) -> Row {
    Row {
        code: violation.code.as_str(),
        severity: violation.code.severity().as_str(),
        line: violation.at.line,
        column: violation.at.column,
        host: violation.host,
        reason: violation.reason,
        remedy: violation.code.remedy(),
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn as_text(report: &Report, colour: bool) -> String {
    let mut rows = Vec::new();
    for file in &report.files {
        for violation in &file.violations {
            let bad = violation.severity == Severity::Error.as_str();
            rows.push([
                Cell::plain(format!("{}:{}:{}", file.file, violation.line, violation.column)),
                Cell::plain(violation.host.as_deref().unwrap_or("-")),
                Cell::new(violation.code, if bad { Tone::Bad } else { Tone::Plain }),
                Cell::plain(violation.severity),
                Cell::plain(&violation.reason),
                Cell::plain(violation.remedy),
            ]);
        }
    }
    let mut text = String::new();
    if !rows.is_empty() {
        text = table::render(["WHERE", "HOST", "CODE", "SEVERITY", "REASON", "REMEDY"], rows, colour);
        text.push('\n');
    }
    let summaries = report.files.iter().map(|file| {
        let count = |severity: Severity| {
            file.violations.iter().filter(|violation| violation.severity == severity.as_str()).count()
        };
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let state = match (errors, warnings) {
            (0, 0) => Cell::new("follows the rules", Tone::Good),
            (0, warnings) => Cell::new(format!("follows the rules, {}", counted(warnings, "warning")), Tone::Good),
            (errors, 0) => Cell::new(counted(errors, "error"), Tone::Bad),
            (errors, warnings) => {
                Cell::new(format!("{}, {}", counted(errors, "error"), counted(warnings, "warning")), Tone::Bad)
            }
        };
        let hosts = if file.form == Some("install-config") { file.hosts.len().to_string() } else { "-".to_owned() };
        [Cell::plain(&file.file), Cell::plain(file.form.unwrap_or("-")), Cell::plain(hosts), state]
    });
    text + &table::render(["FILE", "FORM", "HOSTS", "STATE"], summaries.collect(), colour)
}
