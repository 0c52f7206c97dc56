//! `ovnkube`: OVN networking for Kubernetes, in one binary.
//!
//! `cli` parses the command line; `config` merges flags, environment, one file and the defaults of the
//! settings that `settings` declares; `commands` does the work and returns the exit status. Short commands
//! query a running role through `http`, or an OVSDB server through the crate `ovsdb`.

mod cli;
mod commands;
mod config;
mod http;
mod settings;
mod suggest;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::parse() {
        Ok(cli) => commands::run(&cli),
        Err(status) => status,
    }
}
