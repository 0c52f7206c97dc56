//! `ovnkube controller`: starts the controller from the settings.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use controller::{ElectionOptions, Options};
use telemetry::Telemetry;

use super::agreement::{Agreement, agree, check_kubeconfig, exposed_databases};
use crate::cli::Controller;
use crate::config::{Config, ConfigArgs, Problems};
use crate::settings::{self, parse_bind_address};

pub(super) fn run(role: &Controller, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    // Check the settings before anything is started.
    let options = options(role, &config)?;
    let mut telemetry = telemetry::Options::new("controller", telemetry::build::VERSION, telemetry::build::COMMIT);
    telemetry.log = config.log_options()?;
    telemetry.listen = parse_bind_address(config.value(&settings::METRICS_ADDRESS)?).map_err(|why| anyhow!(why))?;
    telemetry.listen_setting = "[metrics] bind-address".into();
    let telemetry = Telemetry::start(&telemetry)?;
    for warning in config
        .warnings
        .iter()
        .cloned()
        .chain(exposed_databases(&config, &[&settings::NB_ADDRESS, &settings::SB_ADDRESS]))
    {
        tracing::warn!("{warning}");
    }
    // One thread: one writer needs no more, and memory use stays low.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let ended = controller::run(options, &telemetry).await;
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

fn options(role: &Controller, config: &Config) -> anyhow::Result<Options> {
    let Agreement { cluster, northbound, southbound, kubeconfig, pace } = agree(config)?;
    let lease = pace.lease(&role.lease.leader_election_namespace, &role.lease.leader_election_lease, &identity(role)?);
    lease.check().map_err(|error| Problems(vec![error.to_string()]))?;
    if role.run_northd.is_some() && northbound.uses_tls() && southbound.uses_tls() && northbound.tls != southbound.tls {
        let problem = "--run-northd: ovn-northd takes one private key, certificate and authority for both databases: give \
                       [ovnnorth] and [ovnsouth] the same files, or run ovn-northd yourself";
        return Err(Problems(vec![problem.into()]).into());
    }
    if let Some(file) = &role.lease.leader_election_kubeconfig {
        check_kubeconfig(file).map_err(|error| Problems(vec![error.to_string()]))?;
    }
    let election = ElectionOptions { kubeconfig: role.lease.leader_election_kubeconfig.clone(), lease };
    Ok(Options {
        cluster,
        northbound,
        southbound,
        kubeconfig,
        election,
        adopt: role.adopt,
        northd: role.run_northd.clone(),
        northd_control: role.northd_control.clone(),
    })
}

/// A unique identity: two processes of one pod never run at once, but two of one host may.
fn identity(role: &Controller) -> anyhow::Result<String> {
    if let Some(identity) = &role.identity {
        return Ok(identity.clone());
    }
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let host = || {
        std::fs::read_to_string("/proc/sys/kernel/hostname").context("cannot read the host name; hint: give --identity")
    };
    let name = pod.map_or_else(host, Ok)?;
    Ok(format!("{}_{}", name.trim(), std::process::id()))
}
