//! Consistency of the settings with each other and with the files that they refer to; checked by `config check`, and by
//! roles before they start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail};
use controller::DatabaseAccess;
use kubernetes::LeaseSettings;
use netmodel::Family;
use ovsdb::client::{Remote, TlsFiles};
use topology::ClusterSettings;
use topology::allocation::Allocator;

use crate::config::{Config, Problems};
use crate::settings::{self, Setting, list, parse_seconds};

/// The checked settings.
#[derive(Debug)]
pub(super) struct Agreement {
    pub(super) cluster: ClusterSettings,
    pub(super) northbound: DatabaseAccess,
    pub(super) southbound: DatabaseAccess,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) pace: Pace,
}

/// Timing of leader election.
#[derive(Debug)]
pub(super) struct Pace {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl Pace {
    pub(super) fn lease(&self, namespace: &str, name: &str, identity: &str) -> LeaseSettings {
        LeaseSettings {
            duration: self.duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            ..LeaseSettings::new(namespace, name, identity)
        }
    }
}

/// Checks the settings; returns all inconsistencies.
pub(super) fn agree(config: &Config) -> Result<Agreement, Problems> {
    let mut problems = Vec::new();
    let cluster = keep(cluster(config), &mut problems);
    let north = keep(northbound(config), &mut problems);
    let southbound = keep(database_access(config, database::Kind::Southbound), &mut problems);
    let kubeconfig = keep(kubeconfig(config), &mut problems);
    let pace = keep(pace(config), &mut problems);
    match (cluster, north, southbound, kubeconfig, pace) {
        (Some(cluster), Some(northbound), Some(southbound), Some(kubeconfig), Some(pace)) => {
            Ok(Agreement { cluster, northbound, southbound, kubeconfig, pace })
        }
        _ => Err(Problems(problems)),
    }
}

fn keep<T>(result: anyhow::Result<T>, problems: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| problems.push(format!("{error:#}"))).ok()
}

pub(super) fn cluster(config: &Config) -> anyhow::Result<ClusterSettings> {
    fn parsed<T: std::str::FromStr<Err: ToString>>(config: &Config, setting: &Setting) -> anyhow::Result<T> {
        config.value(setting)?.parse().map_err(|error: T::Err| anyhow!("{}: {}", setting.key, error.to_string()))
    }
    let lists = |why: String| anyhow!(why);
    let cidrs = list(config.value(&settings::CLUSTER_SUBNETS)?).map_err(lists)?;
    let services = list(config.value(&settings::SERVICE_CIDRS)?).map_err(lists)?;
    let mut cluster = ClusterSettings::new(cidrs, services);
    let network = |setting: &Setting, family: Family| -> anyhow::Result<netmodel::Prefix> {
        let prefix: netmodel::Prefix = parsed(config, setting)?;
        anyhow::ensure!(prefix.family() == family, "{}: {prefix} is not an {family} network", setting.key);
        Ok(prefix)
    };
    cluster.join = vec![network(&settings::V4_JOIN, Family::V4)?, network(&settings::V6_JOIN, Family::V6)?];
    cluster.masquerade =
        vec![network(&settings::V4_MASQUERADE, Family::V4)?, network(&settings::V6_MASQUERADE, Family::V6)?];
    cluster.multicast = parsed(config, &settings::MULTICAST)?;
    cluster.snat_per_pod = parsed(config, &settings::SNAT_PER_POD)?;
    cluster.gateway_mtu = parsed(config, &settings::MTU)?;
    cluster.databases = [&settings::NB_ADDRESS, &settings::SB_ADDRESS]
        .iter()
        .filter_map(|setting| Remote::parse_list(config.value(setting).ok()?).ok())
        .flatten()
        .filter_map(|remote| remote.endpoint()?.host.parse().ok())
        .collect();
    cluster.check()?;
    let mtu = cluster.gateway_mtu;
    anyhow::ensure!(
        !cluster.has_family(Family::V6) || mtu >= 1280,
        "mtu: {mtu} is too small for IPv6 pods, which need at least 1280"
    );
    Allocator::new(&cluster)?;
    Ok(cluster)
}

fn pace(config: &Config) -> anyhow::Result<Pace> {
    let seconds = |setting| parse_seconds(config.value(setting)?).map_err(|why| anyhow!(why));
    let pace = Pace {
        duration: seconds(&settings::LEASE_DURATION)?,
        renew_deadline: seconds(&settings::RENEW_DEADLINE)?,
        retry_period: seconds(&settings::RETRY_PERIOD)?,
    };
    // Its names do not matter for that.
    let checked = pace.lease("namespace", "name", "identity").check();
    checked.map_err(|error| anyhow!("[masterha] invalid timing of the Lease: {}", error.problem))?;
    Ok(pace)
}

pub(super) fn path(config: &Config, setting: &Setting) -> anyhow::Result<Option<PathBuf>> {
    let value = config.value(setting)?;
    Ok((!value.is_empty()).then(|| value.into()))
}

pub(super) fn kubeconfig(config: &Config) -> anyhow::Result<Option<PathBuf>> {
    let file = path(config, &settings::KUBECONFIG)?;
    if let Some(file) = &file {
        check_kubeconfig(file)?;
    }
    Ok(file)
}

pub(super) fn check_kubeconfig(file: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(kubernetes::check_kubeconfig(file))?)
}

/// Access to the northbound database.
pub(super) fn northbound(config: &Config) -> anyhow::Result<DatabaseAccess> {
    database_access(config, database::Kind::Northbound)
}

/// A warning per remote with plain TCP to another host.
pub(super) fn exposed_databases(config: &Config, addresses: &[&Setting]) -> Vec<String> {
    let exposed = |setting: &&Setting| {
        let remotes = Remote::parse_list(config.value(setting).ok()?).ok()?;
        let exposed: Vec<String> = remotes.iter().filter(|it| it.is_exposed()).map(ToString::to_string).collect();
        (!exposed.is_empty()).then(|| {
            format!(
                "INSECURE: [{}] {} has plain TCP to another host ({}): whoever reaches the port, pods included, can read and \
                 rewrite the database; use ssl: remotes with client-privkey, client-cert and client-cacert",
                setting.section,
                setting.key,
                exposed.join(", ")
            )
        })
    };
    addresses.iter().filter_map(exposed).collect()
}

/// Access to a database as a client.
pub(super) fn database_access(config: &Config, kind: database::Kind) -> anyhow::Result<DatabaseAccess> {
    access(config, database_settings(kind))
}

/// The certificate files of a database, which its servers use as well as its clients.
pub(super) fn database_tls(config: &Config, kind: database::Kind) -> anyhow::Result<Option<TlsFiles>> {
    let [_, key, certificate, authorities] = database_settings(kind);
    tls(config, [key, certificate, authorities])
}

fn database_settings(kind: database::Kind) -> [&'static Setting; 4] {
    match kind {
        database::Kind::Northbound => {
            [&settings::NB_ADDRESS, &settings::NB_KEY, &settings::NB_CERTIFICATE, &settings::NB_AUTHORITIES]
        }
        database::Kind::Southbound => {
            [&settings::SB_ADDRESS, &settings::SB_KEY, &settings::SB_CERTIFICATE, &settings::SB_AUTHORITIES]
        }
    }
}

fn tls(config: &Config, [key, certificate, authorities]: [&Setting; 3]) -> anyhow::Result<Option<TlsFiles>> {
    let section = key.section;
    match [path(config, key)?, path(config, certificate)?, path(config, authorities)?] {
        [Some(private_key), Some(certificate), Some(authorities)] => {
            let tls = TlsFiles { certificate, private_key, authorities, verify_host_name: false };
            tls.check().map_err(|error| anyhow!("[{section}] {error}"))?;
            Ok(Some(tls))
        }
        [None, None, None] => Ok(None),
        _ => bail!("[{section}] has some of client-privkey, client-cert and client-cacert: give all three"),
    }
}

fn access(config: &Config, [address, key, certificate, authorities]: [&Setting; 4]) -> anyhow::Result<DatabaseAccess> {
    let section = address.section;
    let remotes = Remote::parse_list(config.value(address)?)?;
    let access = DatabaseAccess { remotes, tls: tls(config, [key, certificate, authorities])? };
    if access.tls.is_none() && access.uses_tls() {
        bail!("[{section}] address has ssl: remotes: give client-privkey, client-cert and client-cacert");
    }
    Ok(access)
}
