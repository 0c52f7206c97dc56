//! `ovnkube controller`: from settings to the role.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use controller::{DatabaseAccess, ElectionOptions, Options};
use kubernetes::LeaseSettings;
use ovsdb::client::{Remote, TlsFiles};
use telemetry::Telemetry;
use topology::ClusterSettings;

use crate::cli::Controller;
use crate::config::{Config, Given};
use crate::settings::{self, Setting, list, parse_bind_address, parse_seconds};

pub(super) fn run(role: &Controller, given: &Given) -> anyhow::Result<ExitCode> {
    let config = Config::load(given)?;
    let options = options(role, &config)?;
    // Before anything is started: a mistake in the settings is told at once.
    options.cluster.check()?;
    options.election.lease.check()?;
    let mut telemetry = telemetry::Options::new("controller", telemetry::build::VERSION, telemetry::build::COMMIT);
    telemetry.log = config.log_options()?;
    telemetry.listen = parse_bind_address(config.value(&settings::METRICS_ADDRESS)?).map_err(|why| anyhow!(why))?;
    telemetry.listen_setting = "[metrics] bind-address".into();
    let telemetry = Telemetry::start(&telemetry)?;
    // One thread: one writer needs no more, and memory stays in one place.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let ended = controller::run(options, &telemetry).await;
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

fn options(role: &Controller, config: &Config) -> anyhow::Result<Options> {
    let mut lease = LeaseSettings::new(&role.leader_election_namespace, &role.leader_election_lease, identity(role)?);
    let seconds = |setting| parse_seconds(config.value(setting)?).map_err(|why| anyhow!(why));
    lease.duration = seconds(&settings::LEASE_DURATION)?;
    lease.renew_deadline = seconds(&settings::RENEW_DEADLINE)?;
    lease.retry_period = seconds(&settings::RETRY_PERIOD)?;
    Ok(Options {
        cluster: cluster(config)?,
        northbound: access(
            config,
            [&settings::NB_ADDRESS, &settings::NB_KEY, &settings::NB_CERTIFICATE, &settings::NB_AUTHORITIES],
        )?,
        southbound: access(
            config,
            [&settings::SB_ADDRESS, &settings::SB_KEY, &settings::SB_CERTIFICATE, &settings::SB_AUTHORITIES],
        )?,
        kubeconfig: path(config, &settings::KUBECONFIG)?,
        election: ElectionOptions { kubeconfig: role.leader_election_kubeconfig.clone(), lease },
        adopt: role.adopt,
        northd: role.run_northd.clone(),
    })
}

/// A name that nobody else has: two processes of one pod never run at once, two of one host may.
fn identity(role: &Controller) -> anyhow::Result<String> {
    if let Some(identity) = &role.identity {
        return Ok(identity.clone());
    }
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let host =
        || std::fs::read_to_string("/proc/sys/kernel/hostname").context("the host's name; hint: give --identity");
    let name = pod.map_or_else(host, Ok)?;
    Ok(format!("{}_{}", name.trim(), std::process::id()))
}

fn cluster(config: &Config) -> anyhow::Result<ClusterSettings> {
    fn parsed<T: std::str::FromStr<Err: ToString>>(config: &Config, setting: &Setting) -> anyhow::Result<T> {
        config.value(setting)?.parse().map_err(|error: T::Err| anyhow!("{}: {}", setting.key, error.to_string()))
    }
    let lists = |why: String| anyhow!(why);
    let cidrs = list(config.value(&settings::CLUSTER_SUBNETS)?).map_err(lists)?;
    let services = list(config.value(&settings::SERVICE_CIDRS)?).map_err(lists)?;
    let mut cluster = ClusterSettings::new(cidrs, services);
    cluster.join = vec![parsed(config, &settings::V4_JOIN)?, parsed(config, &settings::V6_JOIN)?];
    cluster.masquerade = vec![parsed(config, &settings::V4_MASQUERADE)?, parsed(config, &settings::V6_MASQUERADE)?];
    cluster.multicast = parsed(config, &settings::MULTICAST)?;
    cluster.snat_per_pod = parsed(config, &settings::SNAT_PER_POD)?;
    cluster.gateway_mtu = parsed(config, &settings::MTU)?;
    Ok(cluster)
}

fn path(config: &Config, setting: &Setting) -> anyhow::Result<Option<PathBuf>> {
    let value = config.value(setting)?;
    Ok((!value.is_empty()).then(|| value.into()))
}

fn access(config: &Config, [address, key, certificate, authorities]: [&Setting; 4]) -> anyhow::Result<DatabaseAccess> {
    let remotes = Remote::parse_list(config.value(address)?)?;
    let files = [path(config, key)?, path(config, certificate)?, path(config, authorities)?];
    let tls = match files {
        [Some(private_key), Some(certificate), Some(authorities)] => {
            Some(TlsFiles { certificate, private_key, authorities, verify_host_name: false })
        }
        [None, None, None] => None,
        _ => bail!("[{}] has some of client-privkey, client-cert and client-cacert: give all three", address.section),
    };
    if tls.is_none() && remotes.iter().any(|remote| matches!(remote, Remote::Ssl(_))) {
        bail!("[{}] address has ssl: remotes: give client-privkey, client-cert and client-cacert", address.section);
    }
    Ok(DatabaseAccess { remotes, tls })
}
