//! Commands about the member on this host: backup, restore, replace-member, rebuild.

use std::future::Future;
use std::process::ExitCode;

use anyhow::Context as _;
use database::replace;
use database::store::RecordStore;
use database::{Options, Peers};
use kubernetes::Api;

use crate::cli::{DbVerb, MemberArgs};
use crate::commands::agreement;
use crate::config::{Config, ConfigArgs, Problems};

/// Options of the member on this host, without its peers.
pub(super) fn options(member: &MemberArgs, config: &Config) -> anyhow::Result<Options> {
    let kind = member.database.kind();
    let name = match member.member.clone().filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("cannot read the host name; hint: give --member")?
            .trim()
            .to_owned(),
    };
    anyhow::ensure!(
        !member.host.is_empty(),
        "--host is empty; hint: give the address of the node, or the pod's DNS name"
    );
    Ok(Options {
        kind,
        member: name,
        data_directory: member.data_dir.clone(),
        run_directory: member.run_dir.clone(),
        schema_directory: member.schema_dir.clone(),
        host: member.host.clone(),
        listen: "::".into(),
        port: kind.port(),
        raft_port: member.raft_port.unwrap_or(kind.raft_port()),
        tls: agreement::database_tls(config, kind)?,
        peers: Peers::Hosts(Vec::new()),
        election_timer: member.election_timer,
        namespace: member.namespace.clone(),
        kubeconfig: agreement::kubeconfig(config)?,
    })
}

pub(super) fn backup(member: &MemberArgs, file: &std::path::Path, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let options = load(member, args)?;
    let info = block_on(replace::backup(&options, file))??;
    let cluster = info.cluster_id.as_deref().unwrap_or("none");
    console::print(&format!("{}: {} of cluster {cluster}, {}\n", file.display(), info.database, info.created))?;
    Ok(ExitCode::SUCCESS)
}

/// `restore`, `replace-member` and `rebuild`.
pub(super) fn change(verb: &DbVerb, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let (DbVerb::Restore(crate::cli::Restore { member, .. })
    | DbVerb::ReplaceMember(crate::cli::Replace { member, .. })
    | DbVerb::Rebuild(crate::cli::Replace { member, .. })) = verb
    else {
        anyhow::bail!("not a change");
    };
    let options = load(member, args)?;
    let remotes = agreement::database_access(&Config::load(args)?, options.kind)?.remotes;
    let said = block_on(async {
        let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
        let store = RecordStore::new(api, options.namespace.clone());
        let database = options.kind.name();
        let new_cluster = |id: &str| {
            format!(
                "{database} database: new cluster {id}; the members join it by themselves: `ovnkube db status` shows it\n"
            )
        };
        let said = match verb {
            DbVerb::ReplaceMember(replace) => {
                let aside = replace::replace_member(&options, &store, replace.force).await?;
                format!("{database} database: this member joins again; its file is {}\n", aside.display())
            }
            DbVerb::Restore(restore) => new_cluster(
                &replace::replace_cluster(&options, &store, &remotes, Some(&restore.file), restore.force)
                    .await?
                    .cluster_id,
            ),
            DbVerb::Rebuild(rebuild) => new_cluster(
                &replace::replace_cluster(&options, &store, &remotes, None, rebuild.force).await?.cluster_id,
            ),
            _ => String::new(),
        };
        Ok::<_, anyhow::Error>(said)
    })??;
    console::print(&said)?;
    Ok(ExitCode::SUCCESS)
}

fn load(member: &MemberArgs, args: &ConfigArgs) -> anyhow::Result<Options> {
    let config = Config::load(args)?;
    telemetry::init_logs(&config.log_options()?)?;
    options(member, &config).map_err(|error| Problems(vec![format!("{error:#}")]).into())
}

fn block_on<T, E>(work: impl Future<Output = Result<T, E>>) -> anyhow::Result<Result<T, E>> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}
