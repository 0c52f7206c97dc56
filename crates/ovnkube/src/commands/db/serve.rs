//! `ovnkube db serve`: runs and manages one member.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use database::{Options, Peers};
use kubernetes::ObjectReference;
use telemetry::Telemetry;

use crate::cli::Serve;
use crate::commands::agreement;
use crate::config::{Config, ConfigArgs, Problems};
use crate::settings::{self, parse_bind_address};

pub(super) fn run(role: &Serve, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    let options = options(role, &config).map_err(|error| Problems(vec![format!("{error:#}")]))?;
    let mut telemetry = telemetry::Options::new("db", telemetry::build::VERSION, telemetry::build::COMMIT);
    telemetry.log = config.log_options()?;
    telemetry.listen = parse_bind_address(config.value(&settings::METRICS_ADDRESS)?).map_err(|why| anyhow!(why))?;
    telemetry.listen_setting = "[metrics] bind-address".into();
    let telemetry = Telemetry::start(&telemetry)?;
    if options.tls.is_none() {
        tracing::warn!(
            "INSECURE: no certificate is configured: whoever reaches the port, pods included, can read and rewrite the database"
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

fn options(role: &Serve, config: &Config) -> anyhow::Result<Options> {
    let kind = role.database.kind();
    let member = match role.member.clone().filter(|name| !name.is_empty()) {
        Some(member) => member,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("cannot read the host name; hint: give --member")?
            .trim()
            .to_owned(),
    };
    anyhow::ensure!(
        !role.host.is_empty(),
        "--host is empty; hint: give the address of the node, or the pod's DNS name"
    );
    let peers = match &role.peers_service {
        Some(service) => Peers::Service(service.clone()),
        None => {
            anyhow::ensure!(
                role.peers.contains(&role.host),
                "--peers {} does not contain --host {}; hint: list all members, this one included",
                role.peers.join(","),
                role.host
            );
            Peers::Hosts(role.peers.clone())
        }
    };
    Ok(Options {
        kind,
        member,
        data_directory: role.data_dir.clone(),
        run_directory: role.run_dir.clone(),
        schema_directory: role.schema_dir.clone(),
        host: role.host.clone(),
        listen: role.listen.clone(),
        port: role.port.unwrap_or(kind.port()),
        raft_port: role.raft_port.unwrap_or(kind.raft_port()),
        tls: agreement::database_tls(config, kind)?,
        peers,
        election_timer: role.election_timer,
        namespace: role.namespace.clone(),
        kubeconfig: agreement::kubeconfig(config)?,
    })
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
