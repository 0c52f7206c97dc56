//! The commands and their exit status.

mod bridge;
mod checked_settings;
mod config;
mod controller;
mod db;
mod health;
mod log_level;
mod node;
mod ovs_sidecar;
mod ovsdb;
mod pki;
mod plan;
mod release;
mod role;
mod role_telemetry;
mod version;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::{Cli, Verb};
use crate::config::Problems;

const FAILED: u8 = 1;
/// The role could not be reached; probes must distinguish it from "not healthy".
const UNREACHABLE: u8 = 2;
/// Wrong usage.
const MISUSE: u8 = 2;
/// A plan would change something, or an answer is no.
const CHANGES: u8 = 3;

/// Runs the command. A role starts `telemetry::Telemetry` from [`crate::config::Config`], and returns after
/// its `Shutdown` was requested.
pub(crate) fn run(cli: &Cli) -> ExitCode {
    let (result, failure) = match &cli.command {
        Verb::Controller(role) => (controller::run(role, &cli.config_args()), FAILED),
        Verb::Node(role) => (node::run(role, &cli.config_args()), FAILED),
        Verb::OvsSidecar(role) => (ovs_sidecar::run(role, &cli.config_args()), FAILED),
        Verb::Db(verb) => (db::run(verb, &cli.config_args()), FAILED),
        Verb::Pki(verb) => (pki::run(verb, &cli.config_args()), FAILED),
        Verb::Bridge(verb) => (bridge::run(verb), FAILED),
        Verb::Config(verb) => (config::run(verb, &cli.config_args()), FAILED),
        Verb::Health { probe, target, output } => {
            (health::run(*probe, target, *output, &cli.config_args()), UNREACHABLE)
        }
        Verb::LogLevel { level, target } => (log_level::run(level.as_deref(), target, &cli.config_args()), UNREACHABLE),
        Verb::Ovsdb(verb) => (ovsdb::run(verb, &cli.config_args()), FAILED),
        Verb::Plan(plan) => (plan::run(plan, &cli.config_args()), FAILED),
        Verb::Release(release) => (release::run(release, &cli.config_args()), FAILED),
        Verb::Version { output } => (version::run(output.is_some()), FAILED),
        Verb::Completions { shell } => (completions(*shell), FAILED),
    };
    result.unwrap_or_else(|error| {
        // Several problems are several lines.
        for line in format!("{error:#}").lines() {
            console::eprint_line(format_args!("error: {line}"));
        }
        // An invalid configuration is wrong usage of any command.
        ExitCode::from(if error.is::<Problems>() { MISUSE } else { failure })
    })
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ovnkube", &mut script);
    console::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
