//! `ovnkube pki status`: all certificates, those of nodes, and which pods use them.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::SystemTime;

use console::table::{self, Cell, Tone};
use pki::signer::Objects;
use pki::{Domain, Entry, Issued, NodeEntry, Object, Role, Stored};
use serde::Serialize;

use crate::cli::{Output, PkiStatus};
use crate::commands::{FAILED, checked_settings};
use crate::config::{Config, ConfigArgs};

/// Shorter remaining lifetimes stand out.
const SOON: i64 = 30 * 24 * 3600;

#[derive(Debug, Serialize)]
struct StatusReport {
    certificates: Vec<Entry>,
    /// The nodes' CAs.
    #[serde(rename = "nodeAuthorities")]
    node_authorities: Vec<Entry>,
    #[serde(rename = "nodeCertificates")]
    node_certificates: Vec<NodeEntry>,
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
        let (own, nodes) = (store.read_allowed(Domain::ControlPlane).await?, store.read_allowed(Domain::Nodes).await?);
        let now = SystemTime::now();
        anyhow::Ok(StatusReport {
            certificates: pki::report(&own.observed, now)?,
            node_authorities: pki::report(&nodes.observed, now)?,
            node_certificates: pki::node_report(&nodes.record(), &nodes.revoked(), now)?,
            problems: [problems(&own), problems(&nodes)].concat(),
            used_by: store.users().await.ok(),
        })
    })?;
    match status.output {
        Output::Json => console::print_json(&report)?,
        Output::Table => console::print(&as_text(&report, table::colour()))?,
    }
    let healthy = report.certificates.iter().any(|entry| entry.role == Role::Certificate && entry.trusted);
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn problems(objects: &Objects) -> Vec<String> {
    fn problem<T>(object: Object, stored: &Stored<T>) -> Option<String> {
        match stored {
            Stored::Present(_) => None,
            Stored::Missing => Some(format!("{object} does not exist")),
            Stored::Unusable(why) => Some(format!("{object}: {why}")),
        }
    }
    let observed = &objects.observed;
    let (secret, config_map) = (observed.domain().secret(), observed.domain().config_map());
    let issued = match &observed.issued {
        Issued::Published(leaf) => problem(Object::LeafSecret, leaf.as_ref()),
        Issued::OnRequest(_) => None,
    };
    let unreadable = observed.bundle.present().into_iter().flat_map(|bundle| &bundle.unreadable);
    let (record, revoked) = (objects.record(), objects.revoked());
    let damaged = record.damaged().map(|(chassis, why)| format!("{}: {chassis}: {why}", Object::ChassisConfigMap));
    let not_revoked =
        revoked.unreadable.iter().map(|line| format!("{config_map}: revoked: {line:?} is not a SHA-256 in hex"));
    [problem(secret, &observed.authorities), problem(config_map, &observed.bundle), issued]
        .into_iter()
        .flatten()
        .chain(unreadable.map(|why| format!("{config_map}: {why}")))
        .chain(damaged)
        .chain(not_revoked)
        .collect()
}

fn as_text(report: &StatusReport, colour: bool) -> String {
    let own = report.certificates.iter().map(|entry| row(entry, ""));
    let of_nodes = report.node_authorities.iter().map(|entry| row(entry, "nodes' "));
    let rows: Vec<_> = own.chain(of_nodes).collect();
    let mut text = table::render(["ROLE", "SUBJECT", "ISSUER", "NAMES", "EXPIRES", "LEFT", "TRUSTED"], rows, colour);
    if !report.node_certificates.is_empty() {
        let rows: Vec<_> = report.node_certificates.iter().map(node_row).collect();
        let head = ["NODE", "CHASSIS", "SHA-256", "ISSUER", "EXPIRES", "LEFT", "REVOKED"];
        text += &format!("\n{}", table::render(head, rows, colour));
    }
    for entry in report.certificates.iter().chain(&report.node_authorities) {
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

fn row(entry: &Entry, of: &str) -> [Cell; 7] {
    let role = match entry.role {
        Role::SigningCa => "CA",
        Role::NextCa => "next CA",
        Role::FormerCa => "former CA",
        Role::OtherCa => "other CA",
        Role::Certificate => "certificate",
    };
    let names = if entry.names.is_empty() { "-".to_owned() } else { entry.names.join(",") };
    [
        Cell::plain(format!("{of}{role}")),
        Cell::plain(&entry.subject),
        Cell::plain(if entry.issuer == entry.subject { "itself" } else { &entry.issuer }),
        Cell::plain(names),
        Cell::plain(&entry.not_after),
        left(entry.seconds_left),
        if entry.trusted { Cell::new("yes", Tone::Good) } else { Cell::new("no", Tone::Bad) },
    ]
}

fn node_row(entry: &NodeEntry) -> [Cell; 7] {
    [
        Cell::plain(&entry.node),
        Cell::plain(&entry.chassis),
        // The JSON output has all of it.
        Cell::plain(entry.fingerprint.chars().take(16).collect::<String>()),
        Cell::plain(&entry.issuer),
        Cell::plain(&entry.not_after),
        left(entry.seconds_left),
        if entry.revoked { Cell::new("yes", Tone::Bad) } else { Cell::plain("no") },
    ]
}

fn left(seconds: i64) -> Cell {
    let tone = match seconds {
        ..=0 => Tone::Bad,
        1..SOON => Tone::Plain,
        _ => Tone::Good,
    };
    Cell::new(duration(seconds), tone)
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
