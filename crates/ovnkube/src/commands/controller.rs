//! `ovnkube controller`: starts the controller from the settings.

use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use controller::{ElectionOptions, Options};

use super::checked_settings::{CheckedSettings, check, check_kubeconfig, exposed_databases};
use super::role_telemetry;
use crate::cli::Controller;
use crate::config::{Config, ConfigArgs, Problems};
use crate::settings;

pub(super) fn run(role: &Controller, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    // Check the settings before anything is started.
    let options = options(role, &config)?;
    let telemetry = role_telemetry::start("controller", None, &config)?;
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
    let CheckedSettings { cluster, northbound, southbound, kubeconfig, lease_timing } = check(config)?;
    let lease = lease_timing.lease(
        &role.lease.leader_election_namespace,
        &role.lease.leader_election_lease,
        &identity(role.identity.as_deref())?,
    );
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

/// A unique identity, as client-go chooses it: a name for people, and a random number. The process ID would not do: in a container
/// it is always 1, and a controller that restarts would renew the Lease of its former process, although a standby is ready.
pub(super) fn identity(given: Option<&str>) -> anyhow::Result<String> {
    if let Some(identity) = given {
        return Ok(identity.to_owned());
    }
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let host = || {
        std::fs::read_to_string("/proc/sys/kernel/hostname").context("cannot read the host name; hint: give --identity")
    };
    let name = pod.map_or_else(host, Ok)?;
    Ok(format!("{}_{:016x}", name.trim(), RandomState::new().hash_one(SystemTime::now())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_controller_has_another_identity() {
        assert_ne!(identity(None).unwrap(), identity(None).unwrap());
        assert_eq!(identity(Some("one")).unwrap(), "one");
    }
}
