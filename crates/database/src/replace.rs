//! Replaces a member's file, or a whole cluster, on an administrator's request. Files are put aside, never deleted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::Remote;

use crate::backup;
use crate::control::command;
use crate::directory::{DataDirectory, DirectoryError};
use crate::file::FileState;
use crate::inspect;
use crate::maintenance::election_timer;
use crate::names;
use crate::options::Options;
use crate::record::Record;
use crate::status::ClusterStatus;
use crate::store::{RecordStore, StoreError};

const LIMIT: Duration = Duration::from_secs(10);

/// Why a request was refused or failed; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The record of the database cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of the database cannot be created or moved.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A file cannot be read or written.
    #[error("cannot access {}: {error}", path.display())]
    File {
        /// The backup, or its description.
        path: PathBuf,
        /// As the kernel reported it.
        error: std::io::Error,
    },
    /// The request does not fit the state of the member or its cluster; the message has the remedy.
    #[error("{0}")]
    Refused(String),
}

/// State of the local server; none if it does not reply.
pub(crate) async fn local_status(options: &Options) -> Option<ClusterStatus> {
    let control = options.kind.control_socket(&options.run_directory);
    let reply = command(&control, "cluster/status", &[options.kind.schema()], LIMIT).await;
    reply.ok().map(|text| ClusterStatus::parse(&text))
}

/// Whether a server is part of a working cluster.
fn is_alive(status: &ClusterStatus) -> bool {
    status.is_member() && status.has_leader()
}

pub(crate) async fn stop_local(options: &Options) {
    let control = options.kind.control_socket(&options.run_directory);
    // Its manager starts it again. One that does not run, or hangs, is the manager's business.
    let _ = command(&control, "exit", &[], LIMIT).await;
}

/// Puts this member's file aside, so that its manager joins again with a new server ID. Returns where the file is.
pub async fn replace_member(options: &Options, store: &RecordStore, force: bool) -> Result<PathBuf, ReplaceError> {
    let directory = DataDirectory::new(options);
    let file = directory.read()?;
    if file == FileState::Missing {
        let path = directory.path().display().to_string();
        return Err(ReplaceError::Refused(match local_status(options).await {
            Some(_) => {
                format!("{path} does not exist, but its server runs and has all data; its manager has it written again")
            }
            None => format!("{path} does not exist: the member joins by itself"),
        }));
    }
    let status = local_status(options).await;
    if let Some(status) = status.filter(|status| is_alive(status) && !force) {
        let others = status.servers.len().saturating_sub(1);
        return Err(ReplaceError::Refused(format!(
            "this server ({}) is a working member of a cluster with {others} others; nothing needs to be replaced; --force does \
             it anyway",
            status.short_id()
        )));
    }
    if store.read(options.kind).await?.is_none() {
        return Err(ReplaceError::Refused(
            "no cluster is recorded in ConfigMap ovnkube-db, so the member would create a new, empty one; use `ovnkube db \
             restore` or `rebuild`"
                .into(),
        ));
    }
    // First the server: a running one would acknowledge writes to a file that is put aside.
    stop_local(options).await;
    let aside = set_aside(&directory, &file)?;
    // Its manager may have started it again in between.
    if let FileState::Clustered(header) = &file
        && local_status(options).await.is_some_and(|status| status.server == header.server.to_string())
    {
        stop_local(options).await;
    }
    Ok(aside)
}

fn set_aside(directory: &DataDirectory<'_>, file: &FileState) -> Result<PathBuf, DirectoryError> {
    match file {
        FileState::Clustered(header) => directory.set_aside(Some(header)),
        _ => directory.set_aside(None),
    }
}

/// Replaces the cluster by a new one: empty, or with the rows of a backup. This member's manager installs it, and the other
/// members join it by themselves. `remotes` are the servers of all members.
pub async fn replace_cluster(
    options: &Options,
    store: &RecordStore,
    remotes: &[Remote],
    backup: Option<&Path>,
    force: bool,
) -> Result<Record, ReplaceError> {
    let directory = DataDirectory::new(options);
    let record = store.read(options.kind).await?;
    if !force {
        let members = inspect::ask_all(options.kind, remotes, options.tls.as_ref()).await;
        if let Some(member) = members.iter().find(|member| member.connected) {
            return Err(ReplaceError::Refused(format!(
                "the database is alive ({} is in contact with a quorum of cluster {}): nothing was changed; --force replaces it \
                 anyway",
                member.remote,
                member.cluster.as_deref().unwrap_or("unknown")
            )));
        }
        let silent: Vec<&str> =
            members.iter().filter(|member| !member.reachable).map(|member| member.remote.as_str()).collect();
        if !silent.is_empty() {
            return Err(ReplaceError::Refused(format!(
                "{} did not answer and may be part of a working cluster that this member does not reach: nothing was changed; \
                 make sure that their servers are down or without a quorum, then --force replaces the cluster",
                silent.join(", ")
            )));
        }
    }
    // The new cluster has this name for ever.
    names::check(&options.host)
        .await
        .map_err(|error| ReplaceError::Refused(format!("{error}; nothing was changed")))?;
    if let Some(backup) = backup
        && let Some(warning) = backup::check(options.kind, backup, record.as_ref(), force)?
    {
        tracing::warn!(database = options.kind.name(), error = warning, "the backup cannot be verified; restoring it");
    }
    let timer = match options.election_timer {
        Some(timer) => timer,
        None => election_timer(store.count_nodes().await.unwrap_or(0)),
    };
    let Some(cluster) = directory.stage_replacement(backup, timer).await? else {
        return Err(ReplaceError::Refused("ovsdb-tool created no cluster".into()));
    };
    // From here on it is the right one, and the manager of this member completes the rest.
    let record = store.replace(options.kind, &cluster.to_string(), &options.member).await?;
    stop_local(options).await;
    Ok(record)
}
