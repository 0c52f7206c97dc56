//! `ovnkube ovs-sidecar`: keeps the host's Open vSwitch running.

use std::process::ExitCode;

use crate::cli::OvsSidecar;
use crate::commands::role_telemetry;
use crate::config::{Config, ConfigArgs};

pub(super) fn run(role: &OvsSidecar, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    let options = ovs_sidecar::Options {
        unit: role.unit.clone(),
        bus: role.bus.clone(),
        log_directory: role.log_dir.clone(),
        run_directory: role.run_dir.clone(),
        state_directory: role.state_dir.clone(),
    };
    let telemetry = role_telemetry::start("ovs-sidecar", None, &config)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let ended = ovs_sidecar::run(options, &telemetry).await;
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}
