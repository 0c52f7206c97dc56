//! The campaign for the Lease: only who could work takes part in it.

use std::sync::Arc;
use std::time::Instant;

use kubernetes::{Elector, LossReason};
use telemetry::Shutdown;
use tokio::sync::{Notify, mpsc, watch};

/// What the campaign tells.
#[derive(Debug)]
pub(crate) enum LeaseNews {
    /// The Lease is ours.
    Acquired,
    /// It is not, any more.
    Lost(LossReason),
}

/// The campaign's handles.
#[derive(Debug)]
pub(crate) struct Campaign {
    /// News of the Lease.
    pub(crate) news: mpsc::Receiver<LeaseNews>,
    /// Whether we could work: all objects listed, the database connected.
    pub(crate) eligible: watch::Sender<bool>,
    /// Gives the Lease up.
    pub(crate) resign: Arc<Notify>,
    /// When the Lease was renewed last, while it is ours.
    pub(crate) renewals: watch::Receiver<Option<Instant>>,
    task: tokio::task::JoinHandle<()>,
}

impl Campaign {
    /// `leader_gone` tells since when another leader has had no session with the database.
    pub(crate) fn start(elector: Elector, leader_gone: watch::Receiver<Option<Instant>>, shutdown: Shutdown) -> Self {
        let (tell, news) = mpsc::channel(4);
        let (eligible, may) = watch::channel(false);
        let resign = Arc::new(Notify::new());
        let renewals = elector.renewals();
        let task = tokio::spawn(campaign(elector, may, leader_gone, tell, resign.clone(), shutdown));
        Self { news, eligible, resign, renewals, task }
    }

    /// Waits until the Lease is given up, after that was asked for.
    pub(crate) async fn ended(self) {
        let Self { news, eligible, task, .. } = self;
        // A full channel must not keep the campaign from its end, nor a Lease that is not ours.
        drop((news, eligible));
        let _ = task.await;
    }
}

async fn campaign(
    mut elector: Elector,
    mut eligible: watch::Receiver<bool>,
    leader_gone: watch::Receiver<Option<Instant>>,
    tell: mpsc::Sender<LeaseNews>,
    resign: Arc<Notify>,
    shutdown: Shutdown,
) {
    loop {
        tokio::select! {
            may = eligible.wait_for(|may| *may) => if may.is_err() { return },
            () = shutdown.wait() => return,
        }
        tokio::select! {
            () = elector.acquire_with_witness(leader_gone.clone()) => {}
            may = eligible.wait_for(|may| !*may) => if may.is_err() { return } else { continue },
            () = shutdown.wait() => return,
        }
        // A request to resign that came when there was nothing left to resign from is not about this term.
        tokio::select! {
            biased;
            () = resign.notified() => {}
            () = std::future::ready(()) => {}
        }
        if tell.send(LeaseNews::Acquired).await.is_err() {
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
        // The work stops before the next may begin; that its commits fail is what the fence is for.
        let gone = tell.send(LeaseNews::Lost(reason)).await.is_err();
        if stopped && let Err(error) = elector.release().await {
            tracing::warn!(%error, "the lease could not be given up; the next leader has to wait for its end");
        }
        if gone {
            return;
        }
    }
}
