//! `ovnkube db serve`: runs and manages one member.

use std::process::ExitCode;
use std::time::Duration;

use database::{Kind, NodeAccess, Options, Peers};
use kubernetes::ObjectReference;
use ovsdb::client::TlsFiles;
use telemetry::Telemetry;

use super::member;
use crate::cli::{Form, NodeArgs, Serve};
use crate::commands::{checked_settings, role_telemetry};
use crate::config::{Config, ConfigArgs, Problems};

pub(super) fn run(role: &Serve, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    let wrong = |error: anyhow::Error| Problems(vec![format!("{error:#}")]);
    let options = serve_options(role, &config).map_err(wrong)?;
    let service = published_service(role, &config).map_err(wrong)?;
    let telemetry = start_telemetry(&config, options.kind.name(), options.tls.as_ref())?;
    let pod = pod(&options);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let ended = match &service {
            Some(service) => database::active_backup::run(options, service, &telemetry, pod).await,
            None => database::run(options, &telemetry, pod).await,
        };
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

/// Logs, metrics and health of a server's manager.
pub(super) fn start_telemetry(config: &Config, instance: &str, tls: Option<&TlsFiles>) -> anyhow::Result<Telemetry> {
    let authorities = tls.map(|files| files.authorities.as_path());
    let telemetry = role_telemetry::start_with_status("db", Some(instance), config, authorities)?;
    if tls.is_none() {
        tracing::warn!(
            "INSECURE: no certificate is configured: any client that reaches the port, including pods, can read and rewrite the database"
        );
    }
    Ok(telemetry)
}

fn serve_options(role: &Serve, config: &Config) -> anyhow::Result<Options> {
    let mut options = member::options(&role.member, config)?;
    options.peers = match &role.peers_service {
        Some(service) => Peers::Service(service.clone()),
        None if role.form == Form::ActiveBackup => Peers::Hosts(role.peers.clone()),
        None if role.peers.is_empty() && role.member.service.is_some() => options.peers,
        None => {
            anyhow::ensure!(!role.peers.is_empty(), "no other member is known; hint: give --peers-service or --peers");
            let host = &options.host;
            anyhow::ensure!(
                role.peers.contains(host),
                "--peers {} does not contain --host {host}; hint: list all members, this one included",
                role.peers.join(","),
            );
            Peers::Hosts(role.peers.clone())
        }
    };
    options.listen = role.listen.clone();
    options.control_port = role.nodes.control_port;
    options.status_port = role_telemetry::status_port(config)?;
    options.nodes = node_access(role, &options)?;
    options.node_count = role.node_count;
    options.gone_after = Duration::from_secs(role.remove_after);
    Ok(options)
}

/// Certificates of nodes; none without their authorities. All containers of a pod may have the same environment, so that for the
/// northbound database they are not an error.
fn node_access(role: &Serve, options: &Options) -> anyhow::Result<Option<NodeAccess>> {
    let NodeArgs { node_authorities, local_port, .. } = &role.nodes;
    let Some(authorities) = node_authorities.clone().filter(|path| !path.is_empty()) else { return Ok(None) };
    if options.kind == Kind::Northbound {
        return Ok(None);
    }
    let nodes = NodeAccess::new(authorities.into(), options.port, *local_port);
    let control = options.control_port.unwrap_or(options.port.saturating_add(4));
    check_node_access(&nodes, options.tls.is_some(), &[options.port, options.raft_port, control])?;
    Ok(Some(nodes))
}

/// An error if nodes cannot have certificates of their own. `others` are the ports besides that on loopback.
pub(super) fn check_node_access(nodes: &NodeAccess, tls: bool, others: &[u16]) -> anyhow::Result<()> {
    anyhow::ensure!(
        tls,
        "--node-authorities needs TLS; hint: set client-privkey, client-cert and client-cacert of [ovnsouth], or leave it out"
    );
    let mut ports = others.to_vec();
    ports.push(nodes.local_port);
    ports.sort_unstable();
    if let Some(pair) = ports.windows(2).find(|pair| pair[0] == pair[1]) {
        anyhow::bail!(
            "two listeners have port {}; hint: check --port, --raft-port, --control-port and --local-port",
            pair[0]
        );
    }
    Ok(())
}

/// The Service that names the active server; none for raft, whose members are all servers for clients.
fn published_service(role: &Serve, config: &Config) -> anyhow::Result<Option<remotes::Service>> {
    if role.form == Form::Raft {
        return Ok(None);
    }
    let kind = role.member.database.kind();
    let service = checked_settings::control_servers(config, kind)?.service;
    let short = kind.short();
    anyhow::ensure!(
        service.is_some(),
        "--form active-backup needs the Service that names the active server to clients; hint: give --{short}-endpoints-service"
    );
    Ok(service)
}

/// The pod of this member, for Events; none outside of a pod.
fn pod(options: &Options) -> Option<ObjectReference> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(ObjectReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: options.namespace.clone(),
        name: variable("POD_NAME")?,
        uid: variable("POD_UID")?,
    })
}
