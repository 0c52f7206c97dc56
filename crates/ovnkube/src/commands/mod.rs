//! What each command does, and the exit status it gives.

mod agreement;
mod config;
mod controller;
mod health;
mod log_level;
mod node;
mod ovsdb;
mod plan;
mod release;
mod role;
mod version;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::{Cli, Verb};
use crate::config::Problems;

/// The command could not do what was asked.
const FAILED: u8 = 1;
/// A role could not even be asked: a probe must tell that from "not healthy".
const CANNOT_ASK: u8 = 2;
/// What was asked for makes no sense.
const MISUSE: u8 = 2;
/// A plan that would change something, or an answer that is no.
const CHANGES: u8 = 3;

/// Does what the command line asks for. A role's arm gives `telemetry::Telemetry::start` what
/// [`crate::config::Config`] says, and returns when its `Shutdown` was asked for and its work has ended.
pub(crate) fn run(cli: &Cli) -> ExitCode {
    let (result, failure) = match &cli.command {
        Verb::Controller(role) => (controller::run(role, &cli.given()), FAILED),
        Verb::Node(role) => (node::run(role, &cli.given()), FAILED),
        Verb::Config(verb) => (config::run(verb, &cli.given()), FAILED),
        Verb::Health { probe, target, output } => (health::run(*probe, target, *output, &cli.given()), CANNOT_ASK),
        Verb::LogLevel { level, target } => (log_level::run(level.as_deref(), target, &cli.given()), CANNOT_ASK),
        Verb::Ovsdb(verb) => (ovsdb::run(verb, &cli.given()), FAILED),
        Verb::Plan(plan) => (plan::run(plan, &cli.given()), FAILED),
        Verb::Release(release) => (release::run(release, &cli.given()), FAILED),
        Verb::Version { output } => (version::run(output.is_some()), FAILED),
        Verb::Completions { shell } => (completions(*shell), FAILED),
    };
    result.unwrap_or_else(|error| {
        // Several problems are several lines, each an error by itself.
        for line in format!("{error:#}").lines() {
            eprintln!("error: {line}");
        }
        // A configuration that cannot be used is a mistake of whoever asked, whatever the command.
        ExitCode::from(if error.is::<Problems>() { MISUSE } else { failure })
    })
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ovnkube", &mut script);
    console::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
