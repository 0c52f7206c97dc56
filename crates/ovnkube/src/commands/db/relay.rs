//! `ovnkube db relay`: runs a relay of the southbound database.

use std::process::ExitCode;

use database::{Kind, NodeAccess, RelayOptions, UpstreamService};
use ovsdb::client::Remote;
use remotes::{DatabaseAccess, Service};

use super::serve::{check_node_access, start_telemetry};
use crate::cli::Relay;
use crate::commands::checked_settings;
use crate::config::{Config, ConfigArgs, Problems};

pub(super) fn run(role: &Relay, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    let options = options(role, &config).map_err(|error| Problems(vec![format!("{error:#}")]))?;
    let telemetry = start_telemetry(&config, "southbound relay", options.tls.as_ref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let ended = database::run_relay(options, &telemetry).await;
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

fn options(role: &Relay, config: &Config) -> anyhow::Result<RelayOptions> {
    let access = checked_settings::database_access(config, Kind::Southbound)?;
    let upstreams = match &role.upstream {
        Some(text) => Remote::parse_list(text)?,
        None => access.remotes,
    };
    let own = |remote: &&Remote| {
        let loopback = |host: &str| ["127.0.0.1", "::1", "localhost", &role.listen].contains(&host);
        remote.endpoint().is_some_and(|endpoint| endpoint.port == role.port && loopback(&endpoint.host))
    };
    if let Some(remote) = upstreams.iter().find(own) {
        anyhow::bail!(
            "{remote} is the relay itself; hint: --upstream must list the members of the southbound database"
        );
    }
    let ssl = upstreams.iter().any(|remote| matches!(remote, Remote::Ssl(_)));
    anyhow::ensure!(
        access.tls.is_some() || !ssl,
        "--upstream has ssl: remotes; hint: set client-privkey, client-cert and client-cacert of [ovnsouth]"
    );
    anyhow::ensure!(
        access.tls.is_some() || role.role.is_none(),
        "--role {} needs TLS, because a role applies to the name in a client's certificate; hint: set client-privkey, \
         client-cert and client-cacert of [ovnsouth]",
        role.role.as_deref().unwrap_or_default(),
    );
    let service = match &role.upstream_service {
        Some(name) => {
            let service = Service::parse(&format!("{}/{name}", role.namespace), Kind::Southbound.port_name())?;
            let service = service.map(|service| service.preferring(Kind::Southbound.control_port_name()));
            Some(UpstreamService {
                access: DatabaseAccess { remotes: upstreams.clone(), tls: access.tls.clone(), service },
                port: role.upstream_port,
                kubeconfig: checked_settings::kubeconfig(config)?,
            })
        }
        None => None,
    };
    let nodes = match role.node_authorities.clone().filter(|path| !path.is_empty()) {
        Some(authorities) => {
            let nodes = NodeAccess::new(authorities.into(), role.port, role.local_port);
            check_node_access(&nodes, access.tls.is_some(), &[role.port])?;
            Some(nodes)
        }
        None => None,
    };
    Ok(RelayOptions {
        run_directory: role.run_dir.clone(),
        listen: role.listen.clone(),
        port: role.port,
        tls: access.tls,
        upstreams,
        service,
        nodes,
        role: role.role.clone(),
    })
}
