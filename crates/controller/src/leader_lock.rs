//! The leader's lock in the northbound database: a sign of life that does not need the Kubernetes API.
//!
//! The leader's session holds an OVSDB lock, and eligible standbys queue for it. A standby that gets it knows that the
//! leader has no session with the database any more, and need not wait for the end of the Lease. The lock decides
//! nothing: the sequence cell alone says whose transactions take effect.

use std::time::{Duration, Instant};

use ovsdb::client::{CallError, Client};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The lock's name; the same for all controllers of a database.
pub(crate) const LOCK: &str = "ovnkube_controller_leader";
/// A request that failed is repeated after this time.
const RETRY: Duration = Duration::from_secs(1);

/// What this instance wants of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Nothing: it could not lead.
    Nothing,
    /// To learn when the leader's session has ended.
    Queue,
    /// To hold it, whoever has it: it leads.
    Hold,
}

/// Keeps the lock as it is wanted, for as long as this is held.
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
    /// Starts it; the receiver tells since when a standby has had the lock, and the leader therefore no session.
    pub(crate) fn start(client: Client) -> (Self, watch::Receiver<Option<Instant>>) {
        let (want, wanted) = watch::channel(Want::Nothing);
        let (tell, leader_gone) = watch::channel(None);
        let task = tokio::spawn(keep(client, wanted, tell)).abort_handle();
        (Self { want, task }, leader_gone)
    }

    pub(crate) fn want(&self, want: Want) {
        self.want.send_if_modified(|before| std::mem::replace(before, want) != want);
    }
}

async fn keep(client: Client, mut wanted: watch::Receiver<Want>, tell: watch::Sender<Option<Instant>>) {
    let mut status = client.status();
    // What was asked of the server last; in a new session the client asks again by itself.
    let mut asked = Want::Nothing;
    loop {
        let want = *wanted.borrow_and_update();
        let (connected, held) = {
            let status = status.borrow_and_update();
            (status.connected, status.locks.iter().any(|lock| lock == LOCK))
        };
        let since = |gone: &mut Option<Instant>| {
            let now = (want == Want::Queue && asked == Want::Queue && held).then(Instant::now);
            let changed = gone.is_some() != now.is_some();
            if changed {
                *gone = now;
            }
            changed
        };
        if tell.send_if_modified(since) && held && want == Want::Queue {
            tracing::info!("leader has no session with the northbound database; watching its Lease");
        }
        let settled = want == asked && (want != Want::Hold || held);
        // Two that both believe to lead must not take it from each other without a pause.
        let stolen = want == Want::Hold && asked == Want::Hold && !held;
        if connected && stolen {
            sleep(RETRY).await;
        }
        let failed = connected && !settled && {
            let done = ask(&client, want).await;
            if let Err(error) = &done {
                tracing::debug!(%error, ?want, "leader lock request failed; retrying");
            }
            // Whatever became of it, the client wants what we want.
            asked = want;
            done.is_err()
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            changed = status.changed() => if changed.is_err() { return },
            () = sleep(RETRY), if failed => {}
        }
    }
}

/// Asks the server for what is wanted. One request must be taken back before the next.
async fn ask(client: &Client, want: Want) -> Result<(), CallError> {
    match client.unlock(LOCK).await {
        // The server knows of no request: that is as well.
        Ok(()) | Err(CallError::Failed { .. }) => {}
        Err(error) => return Err(error),
    }
    match want {
        Want::Nothing => Ok(()),
        Want::Queue => client.lock(LOCK).await.map(drop),
        Want::Hold => client.steal(LOCK).await,
    }
}
