//! `ovnkube pki status`: all certificates, and which pods use them.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::SystemTime;

use console::table::{self, Cell, Tone};
use pki::{Entry, Object, Observed, Role, Stored};
use serde::Serialize;

use crate::cli::{Output, PkiStatus};
use crate::commands::{FAILED, checked_settings};
use crate::config::{Config, ConfigArgs};

/// Shorter remaining lifetimes stand out.
const SOON: i64 = 30 * 24 * 3600;

#[derive(Debug, Serialize)]
struct StatusReport {
    certificates: Vec<Entry>,
    problems: Vec<String>,
    /// Pods that mount the certificate or the trusted CAs, by their owner; none if the user may not list pods.
    #[serde(rename = "usedBy", skip_serializing_if = "Option::is_none")]
    used_by: Option<BTreeMap<String, Vec<String>>>,
}

pub(super) fn run(status: &PkiStatus, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    telemetry::init_logs(&config.log_options()?)?;
    let kubeconfig = checked_settings::kubeconfig(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let store = super::store(kubeconfig.as_deref(), &status.location).await?;
        let observed = store.read_allowed().await?;
        let certificates = pki::report(&observed, SystemTime::now())?;
        anyhow::Ok(StatusReport { problems: problems(&observed), certificates, used_by: store.users().await.ok() })
    })?;
    match status.output {
        Output::Json => console::print_json(&report)?,
        Output::Table => console::print(&as_text(&report, table::colour()))?,
    }
    let healthy = report.certificates.iter().any(|entry| entry.role == Role::Certificate && entry.trusted);
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn problems(observed: &Observed) -> Vec<String> {
    fn problem<T>(object: Object, stored: &Stored<T>) -> Option<String> {
        let object = object.text();
        match stored {
            Stored::Present(_) => None,
            Stored::Missing => Some(format!("{object} does not exist")),
            Stored::Unusable(why) => Some(format!("{object}: {why}")),
        }
    }
    let bundle = observed.bundle.present().into_iter().flat_map(|bundle| &bundle.unreadable);
    [
        problem(Object::CaSecret, &observed.authorities),
        problem(Object::CaConfigMap, &observed.bundle),
        problem(Object::LeafSecret, &observed.leaf),
    ]
    .into_iter()
    .flatten()
    .chain(bundle.map(|why| format!("{}: {why}", Object::CaConfigMap.text())))
    .collect()
}

fn as_text(report: &StatusReport, colour: bool) -> String {
    let rows: Vec<_> = report.certificates.iter().map(row).collect();
    let mut text = table::render(["ROLE", "SUBJECT", "ISSUER", "NAMES", "EXPIRES", "LEFT", "TRUSTED"], rows, colour);
    for entry in &report.certificates {
        if let Some(until) = &entry.retire_after {
            text += &format!("{} is trusted until {until}\n", entry.subject);
        }
        if let Some(weakness) = &entry.weakness {
            text += &format!("problem: {}: {weakness}\n", entry.subject);
        }
    }
    for (owner, pods) in report.used_by.iter().flatten() {
        text += &format!("used by {owner}: {}\n", pods.join(", "));
    }
    for problem in &report.problems {
        text += &format!("problem: {problem}\n");
    }
    text
}

fn row(entry: &Entry) -> [Cell; 7] {
    let role = match entry.role {
        Role::SigningCa => "CA",
        Role::NextCa => "next CA",
        Role::FormerCa => "former CA",
        Role::OtherCa => "other CA",
        Role::Certificate => "certificate",
    };
    let tone = match entry.seconds_left {
        ..=0 => Tone::Bad,
        1..SOON => Tone::Plain,
        _ => Tone::Good,
    };
    let names = if entry.names.is_empty() { "-".to_owned() } else { entry.names.join(",") };
    [
        Cell::plain(role),
        Cell::plain(&entry.subject),
        Cell::plain(if entry.issuer == entry.subject { "itself" } else { &entry.issuer }),
        Cell::plain(names),
        Cell::plain(&entry.not_after),
        Cell::new(duration(entry.seconds_left), tone),
        if entry.trusted { Cell::new("yes", Tone::Good) } else { Cell::new("no", Tone::Bad) },
    ]
}

/// The largest unit of which there are at least two.
fn duration(seconds: i64) -> String {
    if seconds <= 0 {
        return "expired".into();
    }
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds >= 2 * size).unwrap_or((1, "s"));
    format!("{}{unit}", seconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (seconds, text) in
            [(-5, "expired"), (1, "1s"), (90, "90s"), (120, "2m"), (7200, "2h"), (15_552_000, "180d")]
        {
            assert_eq!(duration(seconds), text);
        }
    }
}
