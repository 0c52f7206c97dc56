//! Commands about the member on this host: backup, restore, replace-member, rebuild.

use std::future::Future;
use std::process::ExitCode;

use anyhow::Context as _;
use database::backup;
use database::manager_status::ManagerStatus;
use database::names::StatefulNames;
use database::rename::{self, Renaming};
use database::replace;
use database::store::RecordStore;
use database::{Options, Peers};
use kubernetes::Api;

use crate::cli::{DbVerb, MemberArgs, Rename};
use crate::commands::checked_settings;
use crate::config::{Config, ConfigArgs, Problems};

/// Options of the member on this host; without its peers, unless they are those of a StatefulSet.
pub(super) fn options(member: &MemberArgs, config: &Config) -> anyhow::Result<Options> {
    let kind = member.database.kind();
    let name = match member.member.clone().filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("cannot read the host name; hint: give --member")?
            .trim()
            .to_owned(),
    };
    let (host, peers) = match (member.host.clone(), &member.service) {
        (None, Some(service)) => {
            let replicas = member.replicas.unwrap_or(1);
            let names = StatefulNames::new(&name, service, &member.namespace, &member.cluster_domain, replicas)?;
            (names.host, names.peers)
        }
        (host, _) => (host.unwrap_or_default(), Vec::new()),
    };
    anyhow::ensure!(!host.is_empty(), "--host is empty; hint: give the address of the node, or the pod's DNS name");
    Ok(Options {
        kind,
        member: name,
        data_directory: member.data_dir.clone(),
        run_directory: member.run_dir.clone(),
        schema_directory: member.schema_dir.clone(),
        host,
        listen: "::".into(),
        port: member.port.unwrap_or(kind.port()),
        raft_port: member.raft_port.unwrap_or(kind.raft_port()),
        control_port: None,
        status_port: None,
        tls: checked_settings::database_tls(config, kind)?,
        nodes: None,
        peers: Peers::Hosts(peers),
        election_timer: member.election_timer,
        node_count: None,
        gone_after: database::GONE,
        namespace: member.namespace.clone(),
        kubeconfig: checked_settings::kubeconfig(config)?,
    })
}

pub(super) fn backup(member: &MemberArgs, file: &std::path::Path, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let options = load(member, args)?;
    let info = block_on(backup::take(&options, file))??;
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
        anyhow::bail!("this command changes no member: use restore, replace-member or rebuild");
    };
    let options = load(member, args)?;
    refuse_active_backup(&options)?;
    let access = checked_settings::database_access(&Config::load(args)?, options.kind)?;
    let said = block_on(async {
        // Also the configured servers: one that the API does not list at this moment may be part of a working cluster.
        let mut remotes = remotes::resolve(&access, options.kubeconfig.as_deref()).await;
        remotes.extend(access.remotes.iter().filter(|remote| !remotes.contains(remote)).cloned().collect::<Vec<_>>());
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
                let aside = replace::replace_member(&options, &store, &remotes, replace.force).await?;
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

pub(super) fn rename(role: &Rename, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let options = load(&role.member, args)?;
    refuse_active_backup(&options)?;
    let renaming = Renaming::parse(&role.hosts)?;
    let requested = block_on(async {
        let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
        let store = RecordStore::new(api, options.namespace.clone());
        Ok::<_, anyhow::Error>(rename::request(&options, &store, &renaming).await?)
    })??;
    let (database, host) = (options.kind.name(), &options.host);
    console::print(&if requested {
        format!("{database} database: this member starts again as {host}; its original file is kept\n")
    } else {
        format!("{database} database: the file of {host} has the new names already; nothing to do\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The commands that change a cluster are for raft members.
fn refuse_active_backup(options: &Options) -> anyhow::Result<()> {
    let directory = options.data_directory.display();
    anyhow::ensure!(
        !database::active_backup::is_member(options),
        "the {} database in {directory} is one of an active server and its backups, not a raft member; nothing is changed; \
         hint: docs/runbooks/databases.md, section Active and backups",
        options.kind.name()
    );
    Ok(())
}

fn load(member: &MemberArgs, args: &ConfigArgs) -> anyhow::Result<Options> {
    let config = Config::load(args)?;
    telemetry::init_logs(&config.log_options()?)?;
    let loaded = options(member, &config).map(|options| with_ports_of_manager(options, member));
    loaded.map_err(|error| Problems(vec![format!("{error:#}")]).into())
}

/// The ports of the running manager, unless they are given: a new cluster must have the address that this member serves.
fn with_ports_of_manager(mut options: Options, member: &MemberArgs) -> Options {
    let Some(running) = ManagerStatus::read(options.kind, &options.run_directory) else { return options };
    if member.raft_port.is_none() && running.raft_port != 0 {
        options.raft_port = running.raft_port;
    }
    options.control_port = running.control_port;
    options
}

fn block_on<T, E>(work: impl Future<Output = Result<T, E>>) -> anyhow::Result<Result<T, E>> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}
