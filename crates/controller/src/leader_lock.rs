//! The leader lock in the northbound database: a liveness signal that does not need the Kubernetes API.
//!
//! The leader's session holds an OVSDB lock, and eligible standbys queue for it. A standby that gets it knows that the
//! leader has no session with the database any more, and need not wait until the Lease expires. The lock is not a fence: only
//! the sequence cell decides whose transactions take effect.

use std::time::{Duration, Instant};

use ovsdb::client::{CallError, Client};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Name of the lock, shared by all controllers of a database.
pub(crate) const LOCK: &str = "ovnkube_controller_leader";
/// Delay before a failed request is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// What this instance wants from the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Not eligible: neither leads nor waits for the Lease.
    Nothing,
    /// Standby: learns when the leader's session has ended.
    Queue,
    /// Leader: steals it if necessary.
    Hold,
}

/// Maintains the wanted state of the lock until it is dropped.
#[derive(Debug)]
pub(crate) struct LeaderLock {
    want: watch::Sender<Want>,
    task: AbortHandle,
}

impl Drop for LeaderLock {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LeaderLock {
    /// The receiver has the time since when this standby has the lock, and the leader therefore no session.
    pub(crate) fn start(client: Client) -> (Self, watch::Receiver<Option<Instant>>) {
        let (want, wanted) = watch::channel(Want::Nothing);
        let (sender, leader_gone) = watch::channel(None);
        let task = tokio::spawn(run(client, wanted, sender)).abort_handle();
        (Self { want, task }, leader_gone)
    }

    pub(crate) fn want(&self, want: Want) {
        self.want.send_if_modified(|before| std::mem::replace(before, want) != want);
    }
}

async fn run(client: Client, mut wanted: watch::Receiver<Want>, leader_gone: watch::Sender<Option<Instant>>) {
    let mut status = client.status();
    // The last request; in a new session the client repeats it by itself.
    let mut requested = Want::Nothing;
    loop {
        let want = *wanted.borrow_and_update();
        let (connected, held) = {
            let status = status.borrow_and_update();
            (status.connected, status.locks.iter().any(|lock| lock == LOCK))
        };
        let since = |gone: &mut Option<Instant>| {
            let now = (want == Want::Queue && requested == Want::Queue && held).then(Instant::now);
            let changed = gone.is_some() != now.is_some();
            if changed {
                *gone = now;
            }
            changed
        };
        if leader_gone.send_if_modified(since) && held && want == Want::Queue {
            tracing::info!("no leader has a session with the northbound database; watching the Lease");
        }
        let settled = want == requested && (want != Want::Hold || held);
        // Two instances that both believe they lead must not steal it from each other in a tight loop.
        let stolen = want == Want::Hold && requested == Want::Hold && !held;
        if connected && stolen {
            sleep(RETRY).await;
        }
        let failed = connected && !settled && {
            let done = request(&client, want).await;
            if let Err(error) = &done {
                tracing::debug!(%error, ?want, "leader lock request failed; retrying");
            }
            // Even if it failed: the client repeats the request in its next session.
            requested = want;
            done.is_err()
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            changed = status.changed() => if changed.is_err() { return },
            () = sleep(RETRY), if failed => {}
        }
    }
}

/// Requests what is wanted. An earlier request must be withdrawn first.
async fn request(client: &Client, want: Want) -> Result<(), CallError> {
    match client.unlock(LOCK).await {
        // There was no earlier request.
        Ok(()) | Err(CallError::Failed { .. }) => {}
        Err(error) => return Err(error),
    }
    match want {
        Want::Nothing => Ok(()),
        Want::Queue => client.lock(LOCK).await.map(drop),
        Want::Hold => client.steal(LOCK).await,
    }
}
