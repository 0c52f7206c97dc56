//! `ovnkube db serve`: runs and manages one member.

use std::process::ExitCode;

use anyhow::anyhow;
use database::{Options, Peers};
use kubernetes::ObjectReference;
use telemetry::Telemetry;

use super::member;
use crate::cli::Serve;
use crate::config::{Config, ConfigArgs, Problems};
use crate::settings::{self, parse_bind_address};

pub(super) fn run(role: &Serve, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    let options = serve_options(role, &config).map_err(|error| Problems(vec![format!("{error:#}")]))?;
    let mut telemetry = telemetry::Options::new("db", telemetry::build::VERSION, telemetry::build::COMMIT);
    telemetry.log = config.log_options()?;
    telemetry.listen = parse_bind_address(config.value(&settings::METRICS_ADDRESS)?).map_err(|why| anyhow!(why))?;
    telemetry.listen_setting = "[metrics] bind-address".into();
    let telemetry = Telemetry::start(&telemetry)?;
    if options.tls.is_none() {
        tracing::warn!(
            "INSECURE: no certificate is configured: any client that reaches the port, including pods, can read and rewrite the database"
        );
    }
    let pod = pod(&options);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let ended = database::run(options, &telemetry, pod).await;
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

fn serve_options(role: &Serve, config: &Config) -> anyhow::Result<Options> {
    let mut options = member::options(&role.member, config)?;
    options.peers = match &role.peers_service {
        Some(service) => Peers::Service(service.clone()),
        None => {
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
    options.port = role.port.unwrap_or(options.port);
    Ok(options)
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
