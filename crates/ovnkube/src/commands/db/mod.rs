//! `ovnkube db`: OVN's databases.

mod member;
mod relay;
mod serve;
mod status;
mod status_table;

use std::process::ExitCode;

use crate::cli::DbVerb;
use crate::config::ConfigArgs;

pub(super) fn run(verb: &DbVerb, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match verb {
        DbVerb::Serve(role) => serve::run(role, args),
        DbVerb::Relay(role) => relay::run(role, args),
        DbVerb::Status(status) => status::run(status, args),
        DbVerb::Backup(backup) => member::backup(&backup.member, &backup.file, args),
        DbVerb::Rename(rename) => member::rename(rename, args),
        DbVerb::Restore(_) | DbVerb::ReplaceMember(_) | DbVerb::Rebuild(_) => member::change(verb, args),
    }
}
