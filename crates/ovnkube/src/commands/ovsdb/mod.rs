//! `ovnkube ovsdb`: dump, watch and transact, against any OVSDB server.
//!
//! `connect` finds server, database and tables; `dump`, `watch` and `transact` do the work; `value` formats values,
//! `grid` tables.

mod connect;
mod dump;
pub(super) mod grid;
mod transact;
pub(super) mod value;
mod watch;

use std::process::ExitCode;

use super::{FAILED, MISUSE};
use crate::cli::OvsdbVerb;
use crate::config::{Config, ConfigArgs};

/// Wrong usage, independent of the server.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Misuse(String);

pub(super) fn run(verb: &OvsdbVerb, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    // The file is for roles; only logging is used here.
    let config = Config::load(&ConfigArgs { no_file: true, ..args.clone() })?;
    telemetry::init_logs(&config.log_options()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match verb {
            OvsdbVerb::Dump(dump) => dump::run(dump).await,
            OvsdbVerb::Watch(watch) => watch::run(watch).await,
            OvsdbVerb::Transact(transact) => transact::run(transact).await,
        }
    });
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Part of it may come from the server: print one line without control characters.
            let line: String = format!("{error:#}").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            console::eprint_line(format_args!("error: {line}"));
            ExitCode::from(if error.is::<Misuse>() { MISUSE } else { FAILED })
        }
    })
}
