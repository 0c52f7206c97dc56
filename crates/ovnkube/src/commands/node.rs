//! `ovnkube node`: starts the node agent from the settings.

use std::convert::Infallible;
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use node::{CertificateOptions, CniOptions, Encapsulation, GatewayOptions, LiveSettings, Options, OvnController};
use ovsdb::client::{Remote, TlsFiles};
use remotes::DatabaseAccess;
use tokio::sync::watch;

use super::checked_settings::{addresses, check_service, cluster, exposed_databases, kubeconfig, path, servers};
use super::role_telemetry;
use crate::cli::Node;
use crate::config::{Config, ConfigArgs, Follower, Problems};
use crate::settings::{self, Setting, list, node as own, parse_seconds};

pub(super) fn run(role: &Node, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    // Check the settings before anything is started.
    let options = options(role, &config).map_err(|error| Problems(vec![format!("{error:#}")]))?;
    // One thread: the kernel and the databases do the work, and memory use stays low.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if role.cleanup {
        telemetry::init_logs(&config.log_options()?)?;
        runtime.block_on(node::clean_up(options))?;
        console::print(
            "removed from this host: the runtime's files, pods' ports and interfaces, the gateway's flows, packet filter, addresses and \
             routes, the management port, the settings of ovn-controller, the node's certificate\n\
             left: br-int and its tunnels (ovn-controller's own), system-id and hostname, annotations and conditions of the Node\n",
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let telemetry = role_telemetry::start("node", None, &config)?;
    for warning in config.warnings.iter().cloned().chain(exposed_databases(&config, &[southbound(&config)])) {
        tracing::warn!("{warning}");
    }
    let ended = runtime.block_on(async {
        let live = watch::Sender::new(LiveSettings { mtu: options.cluster.gateway_mtu, error: None });
        let running = node::run(options, live.subscribe(), &telemetry);
        let ended = tokio::select! {
            ended = running => ended,
            never = follow_file(role, args, &config, live) => match never {},
        };
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

/// Reads the file again when it changes. Only the pods' MTU is applied while the agent runs; other changed settings are
/// logged as not applied.
async fn follow_file(
    role: &Node,
    args: &ConfigArgs,
    started: &Config,
    live: watch::Sender<LiveSettings>,
) -> Infallible {
    let mut reported = Vec::new();
    let mut follower = match Follower::of(args) {
        Ok(Some(follower)) => follower,
        Ok(None) => std::future::pending().await,
        Err(error) => {
            tracing::warn!(%error, "cannot watch the configuration file; changes need a restart");
            std::future::pending().await
        }
    };
    loop {
        if let Err(error) = follower.changed().await {
            tracing::warn!(%error, "watch of the configuration file failed; changes need a restart");
            return std::future::pending().await;
        }
        let file = follower.file().display();
        let read = Config::load(args).map_err(anyhow::Error::from);
        match read.and_then(|config| Ok((options(role, &config)?, config))) {
            Err(error) => {
                let error = format!("{error:#}").replace('\n', "; ");
                tracing::warn!(%file, error, "changed configuration is invalid; the previous one stays in effect");
                let problem =
                    format!("{error}; the previous configuration stays in effect until a restart: correct the file");
                live.send_modify(|live| live.error = Some(problem));
            }
            Ok((options, config)) => {
                let mtu = options.cluster.gateway_mtu;
                tracing::info!(%file, mtu, "configuration changed");
                let others = changed(started, &config);
                if !others.is_empty() && others != reported {
                    let settings = others.join(", ");
                    tracing::warn!(settings, "changed settings take effect when the agent is restarted");
                }
                reported = others;
                live.send_replace(LiveSettings { mtu, error: None });
            }
        }
    }
}

/// The settings that differ, except those that are applied while the agent runs.
fn changed(before: &Config, after: &Config) -> Vec<String> {
    let both = before.effective.iter().zip(&after.effective);
    both.filter(|(before, after)| before.value != after.value && before.setting.flag != settings::MTU.flag)
        .map(|(before, _)| format!("[{}] {}", before.setting.section, before.setting.key))
        .collect()
}

fn options(role: &Node, config: &Config) -> anyhow::Result<Options> {
    let text = |setting| config.value(setting);
    let directory = |setting| anyhow::Ok(text(setting)?.into());
    let address = text(&own::ENCAP_IP)?;
    let next_hops: Vec<IpAddr> = match text(&own::GATEWAY_NEXT_HOP)? {
        "" => Vec::new(),
        hops => list(hops).map_err(|why| anyhow!(why))?,
    };
    let northbound = servers(config, database::Kind::Northbound)?;
    let southbound = southbound_servers(config)?;
    check_service(&northbound)?;
    check_service(&southbound)?;
    Ok(Options {
        node: name(role)?,
        kubeconfig: kubeconfig(config)?,
        cluster: cluster(config)?,
        northbound,
        southbound,
        certificate: certificate(config)?,
        switch: text(&own::SWITCH_ADDRESS)?.parse()?,
        ovn_controller: OvnController {
            inactivity_probe: match text(&own::INACTIVITY_PROBE)? {
                "" => None,
                milliseconds => Some(milliseconds.parse()?),
            },
            wait_before_clear: text(&own::WAIT_BEFORE_CLEAR)?.parse()?,
            monitor_all: text(&own::MONITOR_ALL)?.parse()?,
        },
        gateway: GatewayOptions {
            mode: text(&own::GATEWAY_MODE)?.parse()?,
            interface: Some(text(&own::GATEWAY_INTERFACE)?.to_owned()).filter(|name| !name.is_empty()),
            next_hops,
        },
        encapsulation: Encapsulation {
            address: (!address.is_empty()).then(|| address.parse()).transpose()?,
            port: text(&own::ENCAP_PORT)?.parse()?,
        },
        cni: CniOptions {
            socket_dir: directory(&own::CNI_SERVER_DIR)?,
            binaries: directory(&own::CNI_BIN_DIR)?,
            configurations: directory(&own::CNI_CONF_DIR)?,
            shim: path(config, &own::CNI_SHIM)?,
            version: cni::Version::parse(text(&own::CNI_VERSION)?).unwrap_or_default(),
            add_timeout: parse_seconds(text(&own::CNI_ADD_TIMEOUT)?).map_err(|why| anyhow!(why))?,
        },
    })
}

/// Where ovn-controller finds the southbound database: relays if there are any, which no Service names.
fn southbound_servers(config: &Config) -> anyhow::Result<DatabaseAccess> {
    let certificate = certificate(config)?;
    let members = match certificate {
        Some(_) => addresses(config, database::Kind::Southbound)?,
        None => servers(config, database::Kind::Southbound)?,
    };
    let access = match config.value(&own::RELAY_ADDRESS)? {
        "" => members,
        relays => DatabaseAccess { remotes: Remote::parse_list(relays)?, service: None, ..members },
    };
    match certificate {
        Some(certificate) => with_own_certificate(config, &certificate, access),
        None => Ok(access),
    }
}

/// The node's own certificate, if it has one.
fn certificate(config: &Config) -> anyhow::Result<Option<CertificateOptions>> {
    let authorities = path(config, &own::NODE_AUTHORITIES)?;
    let directory = path(config, &own::CERTIFICATE_DIR)?;
    Ok(directory.map(|directory| CertificateOptions { directory, authorities }))
}

/// Access with the node's own certificate instead of `client-privkey` and `client-cert`, which other roles may have in the same file.
fn with_own_certificate(
    config: &Config,
    certificate: &CertificateOptions,
    access: DatabaseAccess,
) -> anyhow::Result<DatabaseAccess> {
    let authorities = path(config, &settings::SB_AUTHORITIES)?;
    anyhow::ensure!(
        authorities.is_some() || !access.uses_tls(),
        "[ovnsouth] certificate-dir needs client-cacert, the CA of the southbound database's servers: give both"
    );
    let tls = authorities.map(|authorities| TlsFiles {
        certificate: CertificateOptions::certificate(&certificate.directory),
        private_key: CertificateOptions::private_key(&certificate.directory),
        authorities,
        verify_host_name: false,
    });
    Ok(DatabaseAccess { tls, ..access })
}

/// The setting with ovn-controller's southbound remotes: relays if there are any.
fn southbound(config: &Config) -> &'static Setting {
    let relays = config.value(&own::RELAY_ADDRESS).is_ok_and(|address| !address.is_empty());
    if relays { &own::RELAY_ADDRESS } else { &settings::SB_ADDRESS }
}

/// Name of the Node: by default kubelet registers the host name in lower case.
fn name(role: &Node) -> anyhow::Result<String> {
    if let Some(name) = &role.node {
        return Ok(name.clone());
    }
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").context("cannot read the host name; hint: give --node")?;
    Ok(host.trim().to_lowercase())
}
