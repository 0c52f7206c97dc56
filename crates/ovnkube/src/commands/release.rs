//! `ovnkube release`: hands the northbound database over to another controller.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use controller::{ReleaseOptions, release_database};

use super::CHANGES;
use super::checked_settings::{kubeconfig, northbound};
use crate::cli::Release;
use crate::config::{Config, ConfigArgs};

pub(super) fn run(command: &Release, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    let own = kubeconfig(&config)?;
    let options = ReleaseOptions {
        northbound: northbound(&config)?,
        kubeconfig: command.lease.leader_election_kubeconfig.clone().or(own),
        lease: (command.lease.leader_election_namespace.clone(), command.lease.leader_election_lease.clone()),
        dry_run: command.dry_run,
        force: command.force,
        remove_unreplaced: command.remove_unreplaced,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (release, in_the_way) =
        runtime.block_on(release_database(&options, |what| console::eprint_line(format_args!("{what}"))))?;
    let held_back = !release.unreplaced.is_empty() && !command.remove_unreplaced;
    let mut text = String::new();
    for (rows, done, would) in [
        (&release.removed, "removed", "would be removed"),
        (&release.handed_over, "left to the other controller", "would be left to the other controller"),
    ] {
        let what = if command.dry_run || held_back { would } else { done };
        write!(text, "{}", listing(what, rows))?;
    }
    for object in &release.unreplaced {
        writeln!(text, "without a replacement by the other controller: {object}")?;
    }
    console::print(&text)?;
    if let Some(error) = in_the_way {
        anyhow::bail!("this release would be refused: {error}");
    }
    if held_back {
        let many = release.unreplaced.len();
        console::eprint_line(format_args!(
            "error: nothing was released: the other controller has no replacement for {many} objects; hint: start it and \
             run this again when it has synced; --remove-unreplaced removes their rows all the same, which opens policies and cuts \
             Services off: only for objects that do not exist any more"
        ));
        return Ok(ExitCode::from(CHANGES));
    }
    Ok(ExitCode::SUCCESS)
}

fn listing(what: &str, rows: &BTreeMap<&'static str, usize>) -> String {
    let total: usize = rows.values().sum();
    let tables: Vec<String> = rows.iter().map(|(table, count)| format!("{count} {table}")).collect();
    let tables = if tables.is_empty() { String::new() } else { format!(" ({})", tables.join(", ")) };
    format!("{total} rows {what}{tables}\n")
}
