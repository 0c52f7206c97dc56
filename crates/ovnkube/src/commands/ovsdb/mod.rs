//! `ovnkube ovsdb`: dump, watch and transact, against any OVSDB server.
//!
//! `connect` and `list` find server, database and tables; `dump`, `watch` and `transact` do the work; `value` shows values, `grid`
//! sets them in columns.

mod connect;
mod dump;
pub(super) mod grid;
mod transact;
pub(super) mod value;
mod watch;

use std::process::ExitCode;

use super::{FAILED, MISUSE};
use crate::cli::OvsdbVerb;
use crate::config::{Config, Given};

/// A request that makes no sense, whatever the server says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Misuse(String);

pub(super) fn run(verb: &OvsdbVerb, given: &Given) -> anyhow::Result<ExitCode> {
    // The file is about roles; only logging is ours to set up.
    let config = Config::load(&Given { no_file: true, ..given.clone() })?;
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
            // Some of it is a server's own words: one line, and nothing that a terminal would obey.
            let line: String = format!("{error:#}").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            eprintln!("error: {line}");
            ExitCode::from(if error.is::<Misuse>() { MISUSE } else { FAILED })
        }
    })
}
