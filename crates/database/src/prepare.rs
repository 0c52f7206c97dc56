//! Prepares the data directory of a member, step by step, until its server can start.

use std::time::Duration;

use ovsdb::client::Remote;
use tokio::time::sleep;

use crate::bootstrap::{Problem, RejoinReason, Situation, Step, next};
use crate::care::election_timer;
use crate::directory::{DataDirectory, DirectoryError};
use crate::file::FileState;
use crate::inspect;
use crate::options::Options;
use crate::record::Record;
use crate::store::{RecordStore, StoreError};

/// How long to wait before a failed step is retried.
const RETRY: Duration = Duration::from_secs(2);

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Refused(#[from] Problem),
    #[error(
        "cluster {cluster} exists, and no other member is known to join it by; waiting for one; if there was none, or all \
         volumes are lost: `ovnkube db restore` or `ovnkube db rebuild`"
    )]
    NoPeers { cluster: String },
}

/// Repeats steps until the server can start. `report` gets each new reason for waiting.
pub(crate) async fn prepare(options: &Options, store: &RecordStore, mut report: impl FnMut(&PrepareError)) {
    let mut last = String::new();
    loop {
        match step(options, store).await {
            Ok(true) => return,
            Ok(false) => last.clear(),
            Err(error) => {
                let text = error.to_string();
                if text != last {
                    report(&error);
                    last = text;
                }
                // The API answers again, an administrator moves a file, or another member starts: all of it is seen only
                // by looking again.
                sleep(RETRY).await;
            }
        }
    }
}

/// One step; true if the server can start.
async fn step(options: &Options, store: &RecordStore) -> Result<bool, PrepareError> {
    let directory = DataDirectory::new(options);
    let file = directory.read()?;
    let path = directory.path().display().to_string();
    let address = options.address();
    let member = match &file {
        FileState::Clustered(header) if header.joined => Some(header),
        _ => None,
    };
    let record = match store.read(options.kind).await {
        // A member with its data can start no second cluster: it need not wait for the API.
        Err(StoreError::Api(error)) if member.is_some_and(|header| header.address == address) => {
            tracing::warn!(database = options.kind.name(), %error, "starting without the record in the API");
            return Ok(true);
        }
        read => read?,
    };
    let staged = directory.read_staged(record.as_ref().map(Record::cluster))?;
    let moved = member.is_some_and(|header| header.address != address);
    // A member with its data and address needs none.
    let peers = if moved || file == FileState::Missing { peers(options, store).await? } else { Vec::new() };
    let has_peers = moved && any_works(options, &peers).await;
    let situation = Situation {
        kind: options.kind,
        path: &path,
        file: &file,
        staged: &staged,
        record: record.as_ref(),
        address: &address,
        has_peers,
    };
    let database = options.kind.name();
    match next(&situation) {
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
            let addresses: Vec<String> = peers.iter().map(|host| options.raft_address(host)).collect();
            directory.join(cluster, &addresses).await?;
            tracing::info!(database, %cluster, peers = peers.join(","), "joining the cluster");
        }
        Step::Rejoin(header, reason) => {
            let aside = directory.set_aside(Some(&header))?;
            let why = match reason {
                RejoinReason::AddressChanged => format!("its address changed from {} to {address}", header.address),
                RejoinReason::ClusterReplaced => "its cluster was replaced by an administrator".to_owned(),
            };
            tracing::warn!(database, why, kept = %aside.display(), "this member joins again as a new server");
        }
        Step::SetAside => {
            let aside = directory.set_aside(None)?;
            tracing::warn!(database, kept = %aside.display(), "put the file aside: an administrator replaced the cluster");
        }
        Step::Start => {
            // One that is left from a crash must never be installed later: its log is old.
            directory.discard()?;
            return Ok(true);
        }
        Step::Refuse(problem) => return Err(problem.into()),
    }
    Ok(false)
}

/// Whether one of these hosts has a working member.
async fn any_works(options: &Options, hosts: &[String]) -> bool {
    let remotes: Vec<Remote> = hosts.iter().filter_map(|host| options.client_address(host).parse().ok()).collect();
    let members = inspect::ask_all(options.kind, &remotes, options.tls.as_ref()).await;
    members.iter().any(|member| member.connected)
}

/// Hosts of the other members.
async fn peers(options: &Options, store: &RecordStore) -> Result<Vec<String>, StoreError> {
    let hosts = store.hosts(&options.peers).await?;
    Ok(hosts.into_iter().filter(|host| *host != options.host).collect())
}
