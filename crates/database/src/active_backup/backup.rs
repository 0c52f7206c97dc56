//! Runs a backup server: it replicates from the active one, and its manager waits for the Lease.

use std::time::{Duration, Instant};

use backoff::Backoff;
use daemon::Running;
use kubernetes::{Elector, LeaseAccess};
use ovsdb::client::{Client, Config, Remote};
use telemetry::Shutdown;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::active_backup::confirmation::Confirmation;
use crate::active_backup::freshness::Freshness;
use crate::active_backup::manager::{Member, TurnEnd};
use crate::active_backup::server::{ChangeError, SyncStatus};
use crate::active_backup::supervision::Role;

/// Interval of replication checks.
const PERIOD: Duration = Duration::from_secs(1);
/// A source that is silent for this long does not answer.
const SOURCE_LIMIT: Duration = Duration::from_secs(4);
/// A member without data checks whether its record was removed once in this many checks.
const RECORD_PERIOD: u32 = 30;

/// The server that this one replicates from.
struct Source {
    remote: Remote,
    /// Connected while it answers: ovsdb-server itself says "replicating" long after its source is gone.
    client: Client,
}

impl Member {
    /// Replicates until the Lease is acquired, the server ends, or shutdown is requested.
    pub(super) async fn back_up(
        &mut self,
        process: &mut Running,
        local: &Client,
        elector: &mut Elector,
        shutdown: &mut Shutdown,
    ) -> TurnEnd {
        // The takeover delay. None: a server without all data must not become active, what it lacks would be lost.
        let (candidate, mut may) = watch::channel(None);
        let access = elector.access();
        let acquire = async {
            loop {
                let Some(delay) = may.wait_for(Option::is_some).await.ok().and_then(|may| *may) else {
                    return std::future::pending().await;
                };
                elector.set_takeover_delay(delay);
                tokio::select! {
                    () = elector.acquire() => return,
                    Ok(_) = may.wait_for(|now| *now != Some(delay)) => {}
                }
            }
        };
        let mut acquire = std::pin::pin!(acquire);
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut source, mut tick, mut unrecorded) = (None, 0_u32, false);
        let mut freshness = Freshness::default();
        loop {
            self.heartbeat.beat();
            tokio::select! {
                biased;
                () = shutdown.wait() => return TurnEnd::Shutdown,
                exit = process.wait() => return self.exited(process, &exit),
                () = &mut acquire => return TurnEnd::Acquired,
                Ok(()) = self.active.changed() => {}
                _ = ticks.tick() => {}
            }
            if !self.confirmed {
                match self.confirm().await {
                    Confirmation::Confirmed => self.confirmed = true,
                    Confirmation::Unknown => {}
                    Confirmation::Refuted => {
                        let database = self.options.kind.name();
                        tracing::warn!(
                            database,
                            "the file does not belong to the recorded database; preparing it again"
                        );
                        return TurnEnd::Restart;
                    }
                }
            }
            if self.follow_active(local, &mut source, &mut freshness, &candidate, &access).await.is_err() {
                // Just started, or busy; the check of the `daemon` crate detects a hang.
                continue;
            }
            tick = tick.wrapping_add(1);
            if self.marker.complete || !tick.is_multiple_of(RECORD_PERIOD) {
                continue;
            }
            // Twice: an active server that is being restarted records its database again.
            let missing = !freshness.is_replicating() && self.is_unrecorded().await;
            if missing && unrecorded {
                tracing::warn!(
                    database = self.options.kind.name(),
                    "the record of the database was deleted; preparing the file again"
                );
                return TurnEnd::Restart;
            }
            unrecorded = missing;
        }
    }

    /// Follows the active server, and notes when all of its data is here.
    async fn follow_active(
        &mut self,
        local: &Client,
        source: &mut Option<Source>,
        freshness: &mut Freshness,
        candidate: &watch::Sender<Option<Duration>>,
        access: &watch::Receiver<LeaseAccess>,
    ) -> Result<(), ChangeError> {
        let watched = self.active.borrow_and_update().as_ref().and_then(|list| list.first()).cloned();
        let active = watched.or_else(|| self.published.clone());
        let last_active = active.as_ref().is_none_or(|active| *active == self.own);
        // Its own address is what an earlier turn published.
        let wanted = active.filter(|active| *active != self.own);
        if let Some(remote) = &wanted
            && source.as_ref().is_none_or(|source| source.remote != *remote)
        {
            self.control.replicate(remote).await?;
            tracing::info!(database = self.options.kind.name(), active = %remote, "replicating from the active server");
            *source = Some(Source { remote: remote.clone(), client: self.source_client(remote) });
        }
        let status = self.control.sync_status().await?;
        let answers = source.as_ref().filter(|source| source.client.status().borrow().connected);
        let copied = matches!(&status, SyncStatus::Replicating(from) if answers.is_some_and(|it| it.remote.to_string() == *from));
        self.set_role(if copied { Role::Backup } else { Role::Waiting });
        freshness.note(copied, last_active, Instant::now());
        if copied && !self.marker.complete && self.has_data(local) {
            self.marker.complete = true;
            match self.marker.write(self.options.kind, &self.options.data_directory) {
                Ok(()) => tracing::info!(database = self.options.kind.name(), "the first replication is complete"),
                Err(error) => {
                    self.marker.complete = false;
                    tracing::error!(database = self.options.kind.name(), %error, "cannot write the marker; retrying");
                }
            }
        }
        let complete = self.marker.complete && self.has_data(local);
        self.metrics.complete.set(complete.into());
        let may = complete && self.confirmed;
        let delay = may.then(|| freshness.takeover_delay(Instant::now()));
        candidate.send_if_modified(|known| std::mem::replace(known, delay) != delay);
        match (copied, may, &wanted) {
            (true, true, _) => match access.borrow().problem() {
                None => self.ready(),
                Some(problem) => self.not_ready(problem),
            },
            _ if !self.confirmed => {
                self.not_ready("the API has not named the active server and the recorded database yet; retrying");
            }
            (_, true, None) => self.not_ready("no server is active; this one is a candidate"),
            (_, true, Some(active)) if delay != Some(Duration::ZERO) => self.not_ready(format!(
                "not replicating from {active} ({status:?}); this copy may be old: it becomes active if no other server does"
            )),
            (_, _, Some(active)) => self.not_ready(format!("not replicating from {active} yet ({status:?})")),
            (_, false, None) => self.not_ready(
                "no server is active, and this one has never had its data; start one that had; if all of them are lost: \
                 docs/runbooks/databases.md, section Active and backups",
            ),
        }
        Ok(())
    }

    fn source_client(&self, remote: &Remote) -> Client {
        let mut config = Config::new(vec![remote.clone()], self.options.kind.schema());
        config.tls.clone_from(&self.options.tls);
        config.leader_only = false;
        config.probe_interval = SOURCE_LIMIT;
        config.backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        Client::start(config)
    }

    /// Whether an administrator removed the record.
    async fn is_unrecorded(&self) -> bool {
        matches!(self.store.read(self.options.kind).await, Ok(None))
    }
}
