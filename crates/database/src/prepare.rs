//! Prepares the data directory of a member, step by step, until its server can start.

use std::path::PathBuf;

use ovsdb::client::Remote;

use crate::assess;
use crate::bootstrap::{BootstrapInputs, Problem, RejoinReason, Step, joins_in_vain, next};
use crate::directory::{DataDirectory, DirectoryError};
use crate::error::DatabaseError;
use crate::file::FileState;
use crate::file_cache::FileCache;
use crate::finding::{Finding, FindingKind};
use crate::inspect::{self, Member};
use crate::maintenance::election_timer;
use crate::names::{self, NameProblem};
use crate::options::{Options, Peers};
use crate::record::Record;
use crate::rename::{self, RenameError};
use crate::status::host_and_port;
use crate::store::{RecordStore, StoreError};
use crate::verify::Verified;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Refused(#[from] Problem),
    #[error(transparent)]
    Name(#[from] NameProblem),
    #[error("this member is not renamed: {0}")]
    Rename(#[from] RenameError),
    #[error(
        "cluster {cluster} exists, and no other member is known to join it by; waiting for one; if there was none, or all \
         volumes are lost: `ovnkube db restore` or `ovnkube db rebuild`"
    )]
    NoPeers { cluster: String },
    #[error("cannot lock the data directory: {0}")]
    Lock(#[from] DatabaseError),
}

impl PrepareError {
    /// The finding that names it, besides [`FindingKind::NotRunning`]; none if it has no name of its own.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let kind = match self {
            Self::Refused(Problem::Damaged { .. }) => FindingKind::DamagedFile,
            Self::Refused(Problem::Standalone { .. }) => FindingKind::StandaloneFile,
            Self::Refused(Problem::OtherDatabase { .. }) => FindingKind::WrongDatabase,
            Self::Refused(Problem::ForeignCluster { .. } | Problem::Replaced { .. }) => FindingKind::ForeignCluster,
            Self::Store(StoreError::Record(_)) => FindingKind::BadRecord,
            Self::Directory(error) => return assess::failure(&error.to_string()),
            Self::Lock(DatabaseError::AlreadyManaged(_)) => FindingKind::VolumeInUse,
            Self::Lock(error) => return assess::failure(&error.to_string()),
            Self::Name(_) => FindingKind::HostNotResolved,
            Self::Store(_) | Self::Rename(_) | Self::NoPeers { .. } => return None,
        };
        Some(Finding::new(kind, self.to_string()))
    }
}

/// One step; true if the server can start.
pub(crate) async fn step(
    options: &Options,
    store: &RecordStore,
    files: &mut FileCache,
    verified: &mut Verified,
) -> Result<bool, PrepareError> {
    let directory = DataDirectory::new(options);
    // An only member reaches its clients without its raft address.
    if !matches!(&options.peers, Peers::Hosts(hosts) if hosts.len() == 1) {
        names::check(&options.host).await?;
    }
    let path = directory.path().display().to_string();
    let mut file = read_verified(&directory, files, verified).await?;
    // Not with a damaged file: its records after the damage would be lost with the rewriting.
    if !matches!(file, FileState::Damaged(_))
        && let Some(kept) = rename(options).await?
    {
        tracing::warn!(database = options.kind.name(), host = options.host, kept = %kept.display(), "renamed this member");
        file = read_verified(&directory, files, verified).await?;
    }
    let address = options.address();
    let member = match &file {
        FileState::Clustered(header) if header.joined => Some(header),
        _ => None,
    };
    let record = match store.read(options.kind).await {
        // A member with its data can start no second cluster: it need not wait for the API.
        // Nor for an administrator who repairs the record.
        Err(error) if member.is_some_and(|header| !has_moved(&header.address, &address)) => {
            tracing::warn!(database = options.kind.name(), %error, "cannot read the record in the API; starting with the local data");
            return Ok(true);
        }
        read => read?,
    };
    let staged = directory.read_staged(files, record.as_ref().map(Record::cluster)).await?;
    let may_join = match &file {
        FileState::Missing => true,
        // A member with its data and address needs no other one.
        FileState::Clustered(header) => {
            let removed = |record: &Record| record.has_removed(header.server, &header.address);
            let replaced = |record: &Record| header.cluster.is_some_and(|cluster| record.has_replaced(cluster));
            let by_record = record.as_ref().is_some_and(|record| removed(record) || replaced(record));
            by_record || !header.joined || has_moved(&header.address, &address)
        }
        FileState::Standalone(_) | FileState::Damaged(_) => false,
    };
    let peers = if may_join { peers(options, store).await? } else { Vec::new() };
    let working = match &record {
        Some(record) => working(options, &peers, record).await,
        None => Vec::new(),
    };
    let inputs = BootstrapInputs {
        kind: options.kind,
        path: &path,
        file: &file,
        staged: &staged,
        record: record.as_ref(),
        address: &address,
        working: &working,
    };
    let database = options.kind.name();
    match next(&inputs) {
        Step::Stage => {
            let nodes = store.count_nodes().await.unwrap_or(0);
            directory.stage(options.election_timer.unwrap_or_else(|| election_timer(nodes))).await?;
        }
        Step::Publish(cluster) => {
            let record = Record::new(cluster.to_string(), &options.member);
            if store.create(options.kind, &record).await? {
                tracing::info!(database, %cluster, "recorded the cluster in ConfigMap ovnkube-db");
            }
        }
        Step::Install => {
            directory.install()?;
            tracing::info!(database, file = path, "created the database");
        }
        Step::Discard => directory.discard()?,
        Step::Join(cluster) => {
            if peers.is_empty() {
                return Err(PrepareError::NoPeers { cluster: cluster.to_string() });
            }
            // Members that join by each other never learn of one that works: `joins_in_vain` has them join again.
            let addresses: Vec<String> = peers.iter().map(|host| options.raft_address(host)).collect();
            directory.join(cluster, &addresses).await?;
            tracing::info!(database, %cluster, peers = peers.join(","), "joining the cluster");
        }
        Step::Rejoin(header, reason) => {
            let aside = directory.set_aside(Some(&header))?;
            let why = match reason {
                RejoinReason::AddressChanged => format!("its address changed from {} to {address}", header.address),
                RejoinReason::ClusterReplaced => "its cluster was replaced by an administrator".to_owned(),
                RejoinReason::Removed => "the leader removed it from the cluster while it was away".to_owned(),
                RejoinReason::PeersChanged => {
                    format!("it had not joined yet, and none of {} works", header.joins_by.join(", "))
                }
            };
            if reason == RejoinReason::Removed
                && let Err(error) = store.forget_removed(options.kind, header.server).await
            {
                tracing::debug!(database, %error, "cannot delete the record of this server's removal; the leader deletes it later");
            }
            tracing::warn!(database, kept = %aside.display(), "put the file aside, because {why}; joining again as a new server");
        }
        Step::SetAside => {
            let aside = directory.set_aside(None)?;
            tracing::warn!(database, kept = %aside.display(), "put the file aside: an administrator replaced the cluster");
        }
        Step::Start => {
            // One that is left from a crash must never be installed later: its log is old.
            directory.discard()?;
            if let Some(header) = member.filter(|header| has_moved(&header.address, &address)) {
                tracing::warn!(
                    database,
                    file = header.address,
                    address,
                    "this member's file has another address, and no other member works; starting with the old one; if all \
                     members have new names: `ovnkube db rename`"
                );
            }
            return Ok(true);
        }
        Step::Refuse(problem) => return Err(problem.into()),
    }
    Ok(false)
}

/// State of the database file, damage found by its checksums included.
async fn read_verified(
    directory: &DataDirectory<'_>,
    files: &mut FileCache,
    verified: &mut Verified,
) -> Result<FileState, DirectoryError> {
    match directory.read(files).await? {
        FileState::Clustered(header) => match verified.damage(&directory.path()).await {
            Ok(None) => Ok(FileState::Clustered(header)),
            Ok(Some(why)) => Ok(FileState::Damaged(why)),
            Err(error) => Err(DirectoryError::read(&directory.path(), error)),
        },
        other => Ok(other),
    }
}

/// Carries out a requested renaming, which may rewrite a large file.
async fn rename(options: &Options) -> Result<Option<PathBuf>, PrepareError> {
    let (owned, path) = (options.clone(), options.kind.file(&options.data_directory));
    let renamed = tokio::task::spawn_blocking(move || rename::apply(&owned)).await;
    Ok(renamed.map_err(|error| RenameError::File { path, error: std::io::Error::other(error) })??)
}

/// Whether host or port changed.
fn has_moved(before: &str, now: &str) -> bool {
    host_and_port(before) != host_and_port(now)
}

/// Whether the cluster of the record has another working member, by which this one can join again.
pub(crate) async fn can_join(options: &Options, store: &RecordStore, record: &Record) -> bool {
    match peers(options, store).await {
        Ok(peers) => !working(options, &peers, record).await.is_empty(),
        Err(_) => false,
    }
}

/// Whether the running server, which has not joined yet, should join by other members than it tries to.
pub(crate) async fn should_join_by_others(
    options: &Options,
    store: &RecordStore,
    files: &mut FileCache,
    record: &Record,
) -> bool {
    let Ok(FileState::Clustered(header)) = DataDirectory::new(options).read(files).await else { return false };
    let Ok(peers) = peers(options, store).await else { return false };
    joins_in_vain(&header, &working(options, &peers, record).await)
}

/// Raft addresses of the hosts whose member works: it is in contact with a quorum of the recorded cluster.
async fn working(options: &Options, hosts: &[String], record: &Record) -> Vec<String> {
    let remote = |host: &String| Some((host.clone(), options.client_address(host).parse().ok()?));
    let (hosts, remotes): (Vec<String>, Vec<Remote>) = hosts.iter().filter_map(remote).unzip();
    let members = inspect::ask_all(options.kind, &remotes, options.tls.as_ref()).await;
    let works = |member: &Member| member.connected && member.cluster.as_deref() == Some(record.cluster_id.as_str());
    let working = hosts.iter().zip(&members).filter(|(_, member)| works(member));
    working.map(|(host, _)| options.raft_address(host)).collect()
}

/// Hosts of the other members.
async fn peers(options: &Options, store: &RecordStore) -> Result<Vec<String>, StoreError> {
    let hosts = store.hosts(&options.peers).await?;
    Ok(hosts.into_iter().filter(|host| *host != options.host).collect())
}
