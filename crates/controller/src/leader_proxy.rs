//! A socket that always leads to the raft leader of a database, for ovn-northd.
//!
//! ```text
//!   ovn-northd ──unix socket──▶ LeaderProxy ──TLS──▶ the leader
//!                                   ▲ status: which server leads
//!                                 Client (monitors no table)
//! ```
//!
//! ovn-northd tries the members one after the other and doubles its backoff each time that it finds a follower or none: it
//! takes up to 15 s until it works with a new leader. Here it finds one address: the connection is closed when the leader
//! changes, and a new one waits until a leader is known, which northd takes for a slow server.
//!
//! northd has one session at a time, and so has the leader: what an earlier connection of northd still had to send must not
//! arrive after the request of a later one, least of all a request to steal the lock (see [`StealLock`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backoff::Backoff;
use ovsdb::client::{Client, Remote, Status, TlsFiles, open_stream};
use remotes::{DatabaseAccess, RemoteUpdates};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::recorded_cluster::RecordedCluster;
use crate::steal_lock::StealLock;

/// A server that is silent for this long is given up, even if no other one leads. One that was succeeded is left at once.
const INACTIVITY_LIMIT: Duration = Duration::from_secs(4);
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long northd's connection waits for a leader. Then it is closed, so that none is left waiting for ever.
const LEADER_LIMIT: Duration = Duration::from_secs(30);

/// What happens when the cluster of the database is replaced by a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// northd is connected to the new one.
    Followed,
    /// northd is not connected any more: the controller fills the new one first, as a new leader with another proxy.
    Refused,
}

/// A listening socket; removed on drop, with its connections.
#[derive(Debug)]
pub(crate) struct LeaderProxy {
    path: PathBuf,
    task: AbortHandle,
    reconnect: Arc<Notify>,
}

impl Drop for LeaderProxy {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

impl LeaderProxy {
    /// Listens at a path. `recorded` names the cluster that replaces one whose files were lost.
    pub(crate) fn start(
        path: PathBuf,
        access: &DatabaseAccess,
        servers: &RemoteUpdates,
        recorded: RecordedCluster,
        replaced: Replaced,
    ) -> io::Result<Self> {
        // Of an earlier process of this pod.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let mut config = access.client_config(servers, recorded.database());
        config.probe_interval = INACTIVITY_LIMIT;
        config.backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
        let (leader, tls, reconnect) = (Client::start(config), access.tls.clone(), Arc::<Notify>::default());
        let (following, requested) = (recorded.follow(leader.clone()), reconnect.clone());
        let task = tokio::spawn(async move {
            tokio::select! {
                () = serve(listener, leader, tls, replaced, &requested) => {}
                () = following => {}
            }
        });
        Ok(Self { path, task: task.abort_handle(), reconnect })
    }

    /// Closes northd's connection, so that it makes another one.
    pub(crate) fn reconnector(&self) -> Arc<Notify> {
        self.reconnect.clone()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

async fn serve(listener: UnixListener, leader: Client, tls: Option<TlsFiles>, replaced: Replaced, reconnect: &Notify) {
    // At most one. Aborted with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.shutdown().await;
                    connections.spawn(forward(stream, leader.status(), tls.clone(), replaced));
                }
                // Out of file descriptors: northd tries again.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of ovn-northd; retrying");
                    sleep(Duration::from_secs(1)).await;
                }
            },
            () = reconnect.notified() => connections.shutdown().await,
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Forwards one connection to the leader, until either side closes it or another server leads.
async fn forward(
    mut northd: UnixStream,
    mut status: watch::Receiver<Status>,
    tls: Option<TlsFiles>,
    replaced: Replaced,
) {
    let usable = |status: &Status| status.connected && (replaced == Replaced::Followed || status.replacements == 0);
    let found = timeout(LEADER_LIMIT, status.wait_for(usable)).await;
    let Ok(Ok(Some(leader))) = found.map(|status| status.map(|status| status.remote.clone())) else { return };
    let Ok(remote) = leader.parse::<Remote>() else { return };
    let mut server = match open_stream(&remote, tls.as_ref(), CONNECT_LIMIT).await {
        Ok(server) => server,
        Err(error) => {
            tracing::debug!(%error, leader, "cannot connect ovn-northd to the leader; ovn-northd retries");
            return;
        }
    };
    tracing::debug!(leader, "connected ovn-northd to the leader");
    let succeeded = status.wait_for(|status| !status.connected || status.remote.as_deref() != Some(leader.as_str()));
    let (mut from_northd, mut to_northd) = northd.split();
    let (mut from_server, mut to_server) = tokio::io::split(&mut server);
    tokio::select! {
        _ = copy_requests(&mut from_northd, &mut to_server) => {}
        _ = tokio::io::copy(&mut from_server, &mut to_northd) => {}
        _ = succeeded => {}
    }
}

async fn copy_requests(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let (mut steal, mut buffer) = (StealLock::default(), vec![0; 64 << 10]);
    while !steal.is_done() {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        to.write_all(&steal.rewrite(&buffer[..length])).await?;
        to.flush().await?;
    }
    // Large transactions follow: they are not searched and not copied once more.
    tokio::io::copy(from, to).await.map(drop)
}
