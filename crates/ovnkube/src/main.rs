//! `ovnkube`: OVN networking for Kubernetes, in one binary.
//!
//! Data flow: `cli` reads the command line; `config` lays flags over the environment over one file over
//! the defaults, for the settings that `settings` declares; `commands` does the work and gives the exit
//! status. Short commands ask a running role through `http`, or an OVSDB server
//! through the crate `ovsdb`; tables come from `console`.

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
