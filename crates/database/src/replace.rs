//! Replaces a member's file, or a whole cluster, on an administrator's request. Files are put aside, never deleted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::Remote;

use crate::backup;
use crate::control::command;
use crate::directory::{DataDirectory, DirectoryError};
use crate::file::FileState;
use crate::file_cache::FileCache;
use crate::inspect::{self, Member};
use crate::kind::Kind;
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

/// Puts this member's file aside, so that its manager joins again with a new server ID. Returns where the file is. `remotes` are
/// the servers of all members.
pub async fn replace_member(
    options: &Options,
    store: &RecordStore,
    remotes: &[Remote],
    force: bool,
) -> Result<PathBuf, ReplaceError> {
    let directory = DataDirectory::new(options);
    let file = directory.read(&mut FileCache::default()).await?;
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
    let Some(record) = store.read(options.kind).await? else {
        return Err(ReplaceError::Refused(
            "no cluster is recorded in ConfigMap ovnkube-db, so the member would create a new, empty one; use `ovnkube db \
             restore` or `rebuild`"
                .into(),
        ));
    };
    if !force {
        let members = inspect::ask_all(options.kind, remotes, options.tls.as_ref()).await;
        let own = match &file {
            FileState::Clustered(header) => Some(header.server.to_string()),
            _ => None,
        };
        may_join_again(options.kind, &record, own.as_deref(), &members, &directory.path())?;
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

/// Whether another member works by which this one can join again. Without a quorum, its file may be the last good copy of what
/// was committed, and the member whose vote is missing for a quorum. Pure.
fn may_join_again(
    kind: Kind,
    record: &Record,
    own: Option<&str>,
    members: &[Member],
    file: &Path,
) -> Result<(), ReplaceError> {
    let others = || members.iter().filter(|member| own.is_none() || member.server.as_deref() != own);
    let recorded = |member: &Member| member.cluster.as_deref() == Some(record.cluster_id.as_str());
    if others().any(|member| member.connected && recorded(member)) {
        return Ok(());
    }
    let state = |member: &Member| {
        let why = match &member.error {
            Some(error) => error.as_str(),
            None if !recorded(member) => "a member of another cluster",
            None => "no contact with a quorum",
        };
        format!("{}: {why}", member.remote)
    };
    let asked: Vec<String> = others().map(state).collect();
    let asked = if asked.is_empty() { "no other member is known".to_owned() } else { asked.join(", ") };
    let (file, short) = (file.display(), kind.short());
    Err(ReplaceError::Refused(format!(
        "no other member of cluster {} works ({asked}), so that this one could not join again, and {file} may be the last good copy; \
         nothing was changed; start a majority of the members first; if their volumes are lost, `ovnkube db restore {short} FILE` \
         or `ovnkube db rebuild {short}`; --force puts the file aside anyway",
        record.cluster_id
    )))
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

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "90a3f6ff-fcf9-4405-8515-1bab9cfda53d";

    fn member(server: &str, cluster: &str, connected: bool) -> Member {
        Member {
            remote: format!("tcp:{server}:6641"),
            reachable: true,
            connected,
            cluster: Some(cluster.into()),
            server: Some(server.into()),
            ..Member::default()
        }
    }

    fn checked(members: &[Member]) -> Result<(), String> {
        let record = Record::new(CLUSTER.into(), "n1");
        let file = Path::new("/etc/ovn/ovnnb_db.db");
        may_join_again(Kind::Northbound, &record, Some("own"), members, file).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_put_aside_only_if_another_member_works() {
        assert_eq!(checked(&[member("own", CLUSTER, false), member("other", CLUSTER, true)]), Ok(()));
        let silent = Member { error: Some("connection refused".into()), server: None, ..member("third", "", false) };
        let lost = [member("own", CLUSTER, true), member("other", CLUSTER, false), silent];
        let error = checked(&lost).unwrap_err();
        for words in [
            "tcp:other:6641: no contact with a quorum, tcp:third:6641: connection refused",
            "/etc/ovn/ovnnb_db.db may be the last good copy; nothing was changed",
            "start a majority of the members first",
            "--force",
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert!(!error.contains("tcp:own"), "{error}");
        let foreign = checked(&[member("other", "11111111-2222-4333-8444-555555555555", true)]).unwrap_err();
        assert!(foreign.contains("a member of another cluster"), "{foreign}");
        assert!(checked(&[]).unwrap_err().contains("no other member is known"));
    }
}
