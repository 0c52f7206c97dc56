//! Replaces a member's file, or a whole cluster, on an administrator's request. Files are put aside, never deleted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::{Remote, control_command};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::timeout;

use crate::care::election_timer;
use crate::directory::{DataDirectory, DirectoryError};
use crate::file::FileState;
use crate::inspect;
use crate::kind::Kind;
use crate::options::Options;
use crate::record::Record;
use crate::status::ClusterStatus;
use crate::store::{RecordStore, StoreError};

const LIMIT: Duration = Duration::from_secs(10);

/// Why a request was refused or failed; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The API failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The data directory failed.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A file cannot be read or written.
    #[error("cannot access {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The request does not fit what is there.
    #[error("{0}")]
    Refused(String),
}

/// Describes a backup; beside it as `FILE.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupInfo {
    /// Name of the schema.
    pub database: String,
    /// The cluster that it was taken of; none for a standalone server.
    pub cluster_id: Option<String>,
    /// When it was taken.
    pub created: String,
}

impl BackupInfo {
    fn path(backup: &Path) -> PathBuf {
        let mut name = backup.as_os_str().to_owned();
        name.push(".json");
        name.into()
    }
}

/// State of the local server; none if it does not reply.
async fn local_status(options: &Options) -> Option<ClusterStatus> {
    let control = options.kind.control_socket(&options.run_directory);
    let reply = timeout(LIMIT, control_command(&control, "cluster/status", &[options.kind.schema()])).await;
    reply.ok()?.ok().map(|text| ClusterStatus::parse(&text))
}

/// Whether a server is part of a working cluster.
fn is_alive(status: &ClusterStatus) -> bool {
    status.is_member() && status.has_leader()
}

async fn stop_local(options: &Options) {
    let control = options.kind.control_socket(&options.run_directory);
    // Its manager starts it again. One that does not run, or hangs, is the manager's business.
    let _ = timeout(LIMIT, control_command(&control, "exit", &[])).await;
}

/// Copies the database of the local server to a file, in the standalone format.
pub async fn backup(options: &Options, target: &Path) -> Result<BackupInfo, ReplaceError> {
    let failure = |path: &Path| {
        let path = path.to_owned();
        move |error| ReplaceError::File { path, error }
    };
    if matches!(FileState::read(target).map_err(failure(target))?, FileState::Clustered(_)) {
        let path = target.display();
        return Err(ReplaceError::Refused(format!("{path} is the file of a raft member; give another name")));
    }
    let socket = options.kind.socket(&options.run_directory);
    let output = Command::new("ovsdb-client")
        .args([
            "--timeout=120",
            "--no-leader-only",
            "backup",
            &format!("unix:{}", socket.display()),
            options.kind.schema(),
        ])
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failure(Path::new("ovsdb-client")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        return Err(ReplaceError::Refused(format!("cannot copy the database: {text}")));
    }
    let cluster_id = local_status(options).await.map(|status| status.cluster).filter(|id| !id.is_empty());
    let info = BackupInfo { database: options.kind.schema().to_owned(), cluster_id, created: kubernetes::timestamp() };
    let mut partial = target.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    write_synced(&partial, &output.stdout).map_err(failure(&partial))?;
    if !matches!(FileState::read(&partial).map_err(failure(&partial))?, FileState::Standalone(_)) {
        return Err(ReplaceError::Refused(format!("the copy in {} is not a database", partial.display())));
    }
    // A file with the final name is complete; its description comes last, so that it never belongs to another copy.
    let beside = BackupInfo::path(target);
    if let Err(error) = std::fs::remove_file(&beside)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(failure(&beside)(error));
    }
    std::fs::rename(&partial, target).map_err(failure(target))?;
    let text = serde_json::to_string_pretty(&info).unwrap_or_default();
    write_synced(&beside, text.as_bytes()).map_err(failure(&beside))?;
    Ok(info)
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.sync_all()
}

/// Puts this member's file aside, so that its manager joins again with a new server ID. Returns where the file is.
pub async fn replace_member(options: &Options, store: &RecordStore, force: bool) -> Result<PathBuf, ReplaceError> {
    let directory = DataDirectory::new(options);
    let file = directory.read()?;
    if file == FileState::Missing {
        return Err(ReplaceError::Refused(format!(
            "{} does not exist: the member joins by itself",
            directory.path().display()
        )));
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
    let aside = set_aside(&directory, &file)?;
    stop_local(options).await;
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
    if let Some(backup) = backup {
        check_backup(options.kind, backup, record.as_ref(), force)?;
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

/// A backup must be complete, of this database, and of a cluster that this database was.
fn check_backup(kind: Kind, backup: &Path, record: Option<&Record>, force: bool) -> Result<(), ReplaceError> {
    let failure = |error| ReplaceError::File { path: backup.to_owned(), error };
    let refuse = |why: String| Err(ReplaceError::Refused(format!("{}: {why}; nothing was changed", backup.display())));
    match FileState::read(backup).map_err(failure)? {
        FileState::Missing => return refuse("no such file".into()),
        FileState::Damaged(why) => return refuse(format!("not a usable backup ({why})")),
        FileState::Standalone(name) if name != kind.schema() => {
            return refuse(format!("a backup of {name}, not of {}", kind.schema()));
        }
        FileState::Clustered(_) => {
            return refuse(
                "the file of a raft member, not a backup; `ovsdb-tool cluster-to-standalone` converts it".into(),
            );
        }
        FileState::Standalone(_) => {}
    }
    if force {
        return Ok(());
    }
    let info =
        std::fs::read(BackupInfo::path(backup)).ok().and_then(|text| serde_json::from_slice::<BackupInfo>(&text).ok());
    let Some(info) = info else {
        return refuse(format!(
            "without {}, which says of which cluster it is; --force restores it anyway",
            BackupInfo::path(backup).display()
        ));
    };
    let known = |id: &String| record.is_none_or(|record| record.cluster_id == *id || record.replaced.contains(id));
    match info.cluster_id {
        Some(id) if !known(&id) => {
            refuse(format!("a backup of cluster {id}, which this database never was; --force restores it anyway"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("backup-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn only_a_complete_backup_of_this_database_is_restored() {
        let json = r#"{"name":"OVN_Northbound","tables":{}}"#;
        let path = write("nb", &format!("OVSDB JSON {} 00\n{json}", json.len()));
        let id = "90a3f6ff-fcf9-4405-8515-1bab9cfda53d";
        let record = Record {
            cluster_id: "624c323b-86d5-4dcb-9462-ce0d2075529a".into(),
            initiator: "n1".into(),
            created: String::new(),
            replaced: vec![id.into()],
        };
        let check = |kind, force| check_backup(kind, &path, Some(&record), force).map_err(|error| error.to_string());
        assert!(check(Kind::Northbound, false).unwrap_err().contains("says of which cluster"));
        assert_eq!(check(Kind::Northbound, true), Ok(()));
        assert!(check(Kind::Southbound, true).unwrap_err().contains("a backup of OVN_Northbound"));
        let info = |cluster: &str| BackupInfo {
            database: "OVN_Northbound".into(),
            cluster_id: Some(cluster.into()),
            created: String::new(),
        };
        let beside = BackupInfo::path(&path);
        std::fs::write(&beside, serde_json::to_string(&info(id)).unwrap()).unwrap();
        assert_eq!(check(Kind::Northbound, false), Ok(()));
        std::fs::write(&beside, serde_json::to_string(&info("00000000-0000-0000-0000-000000000001")).unwrap()).unwrap();
        assert!(check(Kind::Northbound, false).unwrap_err().contains("never was"));
        let truncated = write("short", "OVSDB JSON 400 00\n{");
        let error = check_backup(Kind::Northbound, &truncated, None, true).unwrap_err().to_string();
        assert!(error.contains("truncated") && error.contains("nothing was changed"), "{error}");
        for path in [path, beside, truncated] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
