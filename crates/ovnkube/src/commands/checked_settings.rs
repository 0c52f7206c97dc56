//! Consistency of the settings with each other and with the files that they refer to; checked by `config check`, and by
//! roles before they start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail};
use kubernetes::LeaseSettings;
use netmodel::Family;
use ovsdb::client::{Remote, TlsFiles};
use remotes::{DatabaseAccess, Service};
use topology::ClusterSettings;
use topology::allocation::Allocator;

use crate::config::{Config, Problems};
use crate::settings::{self, Setting, list, parse_seconds};

#[derive(Debug)]
pub(super) struct CheckedSettings {
    pub(super) cluster: ClusterSettings,
    pub(super) northbound: DatabaseAccess,
    pub(super) southbound: DatabaseAccess,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) lease_timing: LeaseTiming,
}

/// Timing of leader election.
#[derive(Debug)]
pub(super) struct LeaseTiming {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl LeaseTiming {
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
pub(super) fn check(config: &Config) -> Result<CheckedSettings, Problems> {
    let mut problems = Vec::new();
    let cluster = keep(cluster(config), &mut problems);
    let north = keep(northbound(config), &mut problems);
    let southbound = keep(database_access(config, database::Kind::Southbound), &mut problems);
    for access in [&north, &southbound].into_iter().flatten() {
        keep(check_service(access), &mut problems);
    }
    let kubeconfig = keep(kubeconfig(config), &mut problems);
    let lease_timing = keep(lease_timing(config), &mut problems);
    let metrics = keep(metrics_files(config), &mut problems);
    match (cluster, north, southbound, kubeconfig, lease_timing, metrics) {
        (Some(cluster), Some(northbound), Some(southbound), Some(kubeconfig), Some(lease_timing), Some(_)) => {
            Ok(CheckedSettings { cluster, northbound, southbound, kubeconfig, lease_timing })
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
    cluster.databases = [&settings::NB_ADDRESS, &settings::SB_ADDRESS, &settings::node::RELAY_ADDRESS]
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

fn lease_timing(config: &Config) -> anyhow::Result<LeaseTiming> {
    let seconds = |setting| parse_seconds(config.value(setting)?).map_err(|why| anyhow!(why));
    let lease_timing = LeaseTiming {
        duration: seconds(&settings::LEASE_DURATION)?,
        renew_deadline: seconds(&settings::RENEW_DEADLINE)?,
        retry_period: seconds(&settings::RETRY_PERIOD)?,
    };
    // Its names do not matter for that.
    let checked = lease_timing.lease("namespace", "name", "identity").check();
    checked.map_err(|error| anyhow!("[masterha] invalid timing of the Lease: {}", error.problem))?;
    Ok(lease_timing)
}

pub(super) fn path(config: &Config, setting: &Setting) -> anyhow::Result<Option<PathBuf>> {
    let value = config.value(setting)?;
    Ok((!value.is_empty()).then(|| value.into()))
}

/// Certificate and private key of the listener for scrapers. Whether they can be used is not checked: metrics must not
/// prevent the start of a role.
pub(super) fn metrics_files(config: &Config) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    match (path(config, &settings::metrics::CERTIFICATE)?, path(config, &settings::metrics::KEY)?) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        _ => bail!("[metrics] has one of tls-cert and tls-key: give both"),
    }
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
                "INSECURE: [{}] {} has plain TCP to another host ({}): anyone who reaches the port, pods included, can read and \
                 rewrite the database; use ssl: remotes with client-privkey, client-cert and client-cacert",
                setting.section,
                setting.key,
                exposed.join(", ")
            )
        })
    };
    addresses.iter().filter_map(exposed).collect()
}

/// Access to a database as a client that is not a node.
pub(super) fn database_access(config: &Config, kind: database::Kind) -> anyhow::Result<DatabaseAccess> {
    let settings = database_settings(kind);
    let access = DatabaseAccess { tls: tls(config, settings.tls)?, ..control_servers(config, kind)? };
    if access.tls.is_none() && access.uses_tls() {
        let section = settings.address.section;
        bail!("[{section}] address has ssl: remotes: give client-privkey, client-cert and client-cacert");
    }
    Ok(access)
}

/// The servers of a database for a role that works without them. Its certificate files need not exist yet.
pub(super) fn servers(config: &Config, kind: database::Kind) -> anyhow::Result<DatabaseAccess> {
    Ok(DatabaseAccess { tls: tls_files(config, database_settings(kind).tls)?, ..addresses(config, kind)? })
}

/// The servers of a database, without certificate files.
pub(super) fn addresses(config: &Config, kind: database::Kind) -> anyhow::Result<DatabaseAccess> {
    let DatabaseSettings { address, service, .. } = database_settings(kind);
    let remotes = Remote::parse_list(config.value(address)?)?;
    let endpoints = Service::parse(config.value(service)?, kind.port_name())?;
    Ok(DatabaseAccess { remotes, tls: None, service: endpoints })
}

/// The same for clients that are not nodes, which have a port of their own if nodes have certificates of theirs.
pub(super) fn control_servers(config: &Config, kind: database::Kind) -> anyhow::Result<DatabaseAccess> {
    let access = servers(config, kind)?;
    let service = access.service.map(|service| service.preferring(kind.control_port_name()));
    Ok(DatabaseAccess { service, ..access })
}

/// The certificate files of a database, which its servers use as well as its clients.
pub(super) fn database_tls(config: &Config, kind: database::Kind) -> anyhow::Result<Option<TlsFiles>> {
    tls(config, database_settings(kind).tls)
}

/// The settings of the connection to one database.
struct DatabaseSettings {
    address: &'static Setting,
    service: &'static Setting,
    /// Private key, certificate and authorities.
    tls: [&'static Setting; 3],
}

fn database_settings(kind: database::Kind) -> DatabaseSettings {
    match kind {
        database::Kind::Northbound => DatabaseSettings {
            address: &settings::NB_ADDRESS,
            service: &settings::NB_SERVICE,
            tls: [&settings::NB_KEY, &settings::NB_CERTIFICATE, &settings::NB_AUTHORITIES],
        },
        database::Kind::Southbound => DatabaseSettings {
            address: &settings::SB_ADDRESS,
            service: &settings::SB_SERVICE,
            tls: [&settings::SB_KEY, &settings::SB_CERTIFICATE, &settings::SB_AUTHORITIES],
        },
    }
}

/// Certificate files, which must be valid.
fn tls(config: &Config, settings: [&Setting; 3]) -> anyhow::Result<Option<TlsFiles>> {
    let tls = tls_files(config, settings)?;
    if let (Some(tls), [key, ..]) = (&tls, settings) {
        tls.check().map_err(|error| anyhow!("[{}] {error}", key.section))?;
    }
    Ok(tls)
}

/// Certificate files, which need not exist yet.
fn tls_files(config: &Config, [key, certificate, authorities]: [&Setting; 3]) -> anyhow::Result<Option<TlsFiles>> {
    let section = key.section;
    match [path(config, key)?, path(config, certificate)?, path(config, authorities)?] {
        [Some(private_key), Some(certificate), Some(authorities)] => {
            Ok(Some(TlsFiles { certificate, private_key, authorities, verify_host_name: false }))
        }
        [None, None, None] => Ok(None),
        _ => bail!("[{section}] has some of client-privkey, client-cert and client-cacert: give all three"),
    }
}

/// An error if the endpoints of its Service cannot be used.
pub(super) fn check_service(access: &DatabaseAccess) -> anyhow::Result<()> {
    let usable = access.service.is_none() || access.remotes.iter().any(|remote| remote.endpoint().is_some());
    let configured: Vec<String> = access.remotes.iter().map(ToString::to_string).collect();
    anyhow::ensure!(
        usable,
        "endpoints-service needs an ssl: or tcp: remote as address, not only {}: the endpoints are reached by the same method \
         and port",
        configured.join(",")
    );
    Ok(())
}
