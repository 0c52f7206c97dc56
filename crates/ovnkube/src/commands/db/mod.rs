//! `ovnkube db`: OVN's databases.

mod serve;
mod status;

use std::process::ExitCode;

use crate::cli::DbVerb;
use crate::config::ConfigArgs;

pub(super) fn run(verb: &DbVerb, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match verb {
        DbVerb::Serve(role) => serve::run(role, args),
        DbVerb::Status(status) => status::run(status, args),
    }
}
