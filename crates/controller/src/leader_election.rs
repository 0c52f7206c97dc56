//! Leader election: an instance competes for the Lease only while it could work.

use std::sync::Arc;
use std::time::Instant;

use kubernetes::{Elector, LeaseAccess, LossReason};
use telemetry::{Condition, Shutdown};
use tokio::sync::{Notify, mpsc, watch};

/// A change of the Lease, for the control loop.
#[derive(Debug)]
pub(crate) enum LeaseEvent {
    /// This instance holds it.
    Acquired,
    /// This instance no longer holds it.
    Lost(LossReason),
}

/// Handle of the election task.
#[derive(Debug)]
pub(crate) struct LeaderElection {
    /// Changes of the Lease, in order.
    pub(crate) events: mpsc::Receiver<LeaseEvent>,
    /// Whether this instance could work: all objects listed, the database connected.
    pub(crate) eligible: watch::Sender<bool>,
    /// Releases the Lease.
    pub(crate) resign: Arc<Notify>,
    /// Time of the last renewal, while this instance holds the Lease.
    pub(crate) renewals: watch::Receiver<Option<Instant>>,
    task: tokio::task::JoinHandle<()>,
}

impl LeaderElection {
    /// `leader_gone` has the time since when another leader has had no session with the database.
    /// `condition` is true while a standby could take the Lease, and while this instance leads.
    pub(crate) fn start(
        elector: Elector,
        leader_gone: watch::Receiver<Option<Instant>>,
        condition: Condition,
        shutdown: Shutdown,
    ) -> Self {
        let (sender, events) = mpsc::channel(4);
        let (eligible, may) = watch::channel(false);
        let resign = Arc::new(Notify::new());
        let renewals = elector.renewals();
        let task = tokio::spawn(run(elector, may, leader_gone, sender, resign.clone(), condition, shutdown));
        Self { events, eligible, resign, renewals, task }
    }

    /// Waits until the Lease is released, after `resign` or the shutdown.
    pub(crate) async fn ended(self) {
        let Self { events, eligible, task, .. } = self;
        // Neither a full channel nor waiting for another's Lease may block the end of the task.
        drop((events, eligible));
        let _ = task.await;
    }
}

async fn run(
    mut elector: Elector,
    mut eligible: watch::Receiver<bool>,
    leader_gone: watch::Receiver<Option<Instant>>,
    events: mpsc::Sender<LeaseEvent>,
    resign: Arc<Notify>,
    condition: Condition,
    shutdown: Shutdown,
) {
    let show = |access: &LeaseAccess| match access.problem() {
        None => condition.ready(),
        Some(problem) => condition.not_ready(problem),
    };
    loop {
        tokio::select! {
            may = eligible.wait_for(|may| *may) => if may.is_err() { return },
            () = shutdown.wait() => return,
        }
        let access = elector.access();
        tokio::select! {
            () = elector.acquire_with_witness(leader_gone.clone()) => {}
            never = LeaseAccess::follow(access, show) => match never {},
            may = eligible.wait_for(|may| !*may) => if may.is_err() { return } else { continue },
            () = shutdown.wait() => return,
        }
        // A leader leads on without the API server.
        condition.ready();
        // A request to resign from before this term does not apply to it.
        tokio::select! {
            biased;
            () = resign.notified() => {}
            () = std::future::ready(()) => {}
        }
        if events.send(LeaseEvent::Acquired).await.is_err() {
            return;
        }
        let stop = async {
            tokio::select! {
                () = resign.notified() => {}
                () = shutdown.wait() => {}
            }
        };
        let reason = elector.hold(stop).await;
        let stopped = reason == LossReason::Stopped;
        // The control loop stops before the next leader begins; should it be late, its commits are fenced.
        let gone = events.send(LeaseEvent::Lost(reason)).await.is_err();
        if stopped && let Err(error) = elector.release().await {
            tracing::warn!(%error, "cannot release leader Lease; the next leader waits until it expires");
        }
        if gone {
            return;
        }
    }
}
