//! `ovnkube version`.

use std::process::ExitCode;

use serde::Serialize;

#[derive(Serialize)]
struct Version {
    version: &'static str,
    commit: &'static str,
}

pub(super) fn run(json: bool) -> anyhow::Result<ExitCode> {
    if json {
        console::print_json(&Version { version: telemetry::build::VERSION, commit: telemetry::build::COMMIT })?;
    } else {
        console::print(&format!("ovnkube {}\n", telemetry::build::VERSION_AND_COMMIT))?;
    }
    Ok(ExitCode::SUCCESS)
}
