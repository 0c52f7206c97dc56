//! `ovnkube node`: from settings to the role.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use node::{CniOptions, Encapsulation, GatewayMode, GatewayOptions, Options, OvnController};
use telemetry::Telemetry;

use super::agreement::{cluster, kubeconfig, path};
use crate::cli::Node;
use crate::config::{Config, Given, Problems};
use crate::settings::{self, list, node as own, parse_bind_address, parse_seconds};

pub(super) fn run(role: &Node, given: &Given) -> anyhow::Result<ExitCode> {
    let config = Config::load(given)?;
    // Before anything is started: a mistake in the settings is told at once.
    let options = options(role, &config).map_err(|error| Problems(vec![format!("{error:#}")]))?;
    // One thread: the kernel and the databases do the work, and memory stays in one place.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if role.cleanup {
        telemetry::init_logs(&config.log_options()?)?;
        runtime.block_on(node::clean_up(options))?;
        console::print(
            "taken off this host: the runtime's files, pods' ports and interfaces, the gateway's flows, packet filter, addresses and \
             routes, the management port, the settings of ovn-controller\n\
             left: br-int and its tunnels (ovn-controller's own), system-id and hostname, what stands on the Node object\n",
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut telemetry = telemetry::Options::new("node", telemetry::build::VERSION, telemetry::build::COMMIT);
    telemetry.log = config.log_options()?;
    telemetry.listen = parse_bind_address(config.value(&settings::METRICS_ADDRESS)?).map_err(|why| anyhow!(why))?;
    telemetry.listen_setting = "[metrics] bind-address".into();
    let telemetry = Telemetry::start(&telemetry)?;
    let ended = runtime.block_on(async {
        let ended = node::run(options, &telemetry).await;
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

fn options(role: &Node, config: &Config) -> anyhow::Result<Options> {
    let text = |setting| config.value(setting);
    let folder = |setting| anyhow::Ok(text(setting)?.into());
    let address = text(&own::ENCAP_IP)?;
    let next_hops: Vec<IpAddr> = match text(&own::GATEWAY_NEXT_HOP)? {
        "" => Vec::new(),
        hops => list(hops).map_err(|why| anyhow!(why))?,
    };
    Ok(Options {
        node: name(role)?,
        kubeconfig: kubeconfig(config)?,
        cluster: cluster(config)?,
        switch: text(&own::SWITCH_ADDRESS)?.parse()?,
        ovn_controller: OvnController {
            southbound: text(&settings::SB_ADDRESS)?.to_owned(),
            inactivity_probe: text(&own::INACTIVITY_PROBE)?.parse()?,
            wait_before_clear: text(&own::WAIT_BEFORE_CLEAR)?.parse()?,
            monitor_all: text(&own::MONITOR_ALL)?.parse()?,
        },
        gateway: GatewayOptions {
            mode: if text(&own::GATEWAY_MODE)? == "local" { GatewayMode::Local } else { GatewayMode::Shared },
            interface: Some(text(&own::GATEWAY_INTERFACE)?.to_owned()).filter(|name| !name.is_empty()),
            next_hops,
        },
        encapsulation: Encapsulation {
            address: (!address.is_empty()).then(|| address.parse()).transpose()?,
            port: text(&own::ENCAP_PORT)?.parse()?,
        },
        cni: CniOptions {
            socket_folder: folder(&own::CNI_SERVER_DIR)?,
            binaries: folder(&own::CNI_BIN_DIR)?,
            configurations: folder(&own::CNI_CONF_DIR)?,
            shim: path(config, &own::CNI_SHIM)?,
            version: cni::Version::parse(text(&own::CNI_VERSION)?).unwrap_or_default(),
            patience: parse_seconds(text(&own::CNI_PATIENCE)?).map_err(|why| anyhow!(why))?,
        },
    })
}

/// The node's name: kubelet registers the host's in small letters unless it is told another.
fn name(role: &Node) -> anyhow::Result<String> {
    if let Some(name) = &role.node {
        return Ok(name.clone());
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").context("the host's name; hint: give --node")?;
    Ok(host.trim().to_lowercase())
}
