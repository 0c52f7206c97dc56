//! Runs the active server: it accepts writes while its manager holds the Lease.

use std::time::{Duration, Instant};

use daemon::Running;
use kubernetes::Elector;
use ovsdb::client::Client;
use telemetry::Shutdown;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

use crate::active_backup::manager::{Member, TurnEnd, until_silent};
use crate::active_backup::publish::publish;
use crate::active_backup::supervision::Role;
use crate::control::CommandError;
use crate::node_listener::ListenerProblem;
use crate::record::Record;

/// Without a renewal for this long, no writes are accepted. The Lease, after which another server may, is longer by the time
/// that a server may take to obey.
pub(super) const SUSPEND_AFTER: Duration = Duration::from_secs(6);
/// A server that does not answer its manager for this long, after it was found silent, gives the Lease to another one.
const HUNG_LIMIT: Duration = Duration::from_secs(2);
/// Interval of checks that the API names this server.
const PERIOD: Duration = Duration::from_secs(1);
/// Once in this many checks, the record of the database is restored if it was deleted.
const RECORD_PERIOD: u32 = 15;
/// How long the server may take to become read-only; then it is killed.
const SUSPEND_LIMIT: Duration = Duration::from_secs(2);

/// When writes are no longer accepted, after this renewal of the Lease.
fn suspend_at(renewed: Option<Instant>, now: Instant) -> Instant {
    renewed.map_or(now, |renewed| renewed + SUSPEND_AFTER)
}

impl Member {
    /// Makes the server active until the Lease is lost, the server ends, or shutdown is requested.
    pub(super) async fn lead(
        &mut self,
        process: &mut Running,
        local: &Client,
        elector: &mut Elector,
        shutdown: &mut Shutdown,
    ) -> TurnEnd {
        let database = self.options.kind.name();
        let mut renewals = elector.renewals();
        if let Err(error) = self.control.activate().await {
            tracing::error!(database, %error, "cannot make the server active; releasing the Lease, restarting it");
            return TurnEnd::Restart;
        }
        tracing::info!(database, address = %self.own, "this server is active");
        self.set_role(Role::Active);
        self.ready();
        if let Some(nodes) = &self.nodes {
            nodes.open(process.process());
        }
        let mut hold = std::pin::pin!(elector.hold(std::future::pending()));
        let mut hung = std::pin::pin!(until_silent(local.status(), HUNG_LIMIT));
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut suspended, mut tick) = (false, 0_u32);
        loop {
            self.heartbeat.beat();
            let deadline = suspend_at(*renewals.borrow_and_update(), Instant::now());
            tokio::select! {
                biased;
                () = sleep_until(deadline.into()), if !suspended => {
                    tracing::error!(
                        database,
                        "the Lease was not renewed: another server may become active; accepting no writes until it is renewed"
                    );
                    self.set_role(Role::Waiting);
                    self.not_ready("the Lease cannot be renewed; no writes are accepted");
                    let done = timeout(SUSPEND_LIMIT, self.control.suspend()).await;
                    if let Err(error) = done.unwrap_or_else(|_| Err(CommandError::NoReply { command: "suspend".into(), limit: SUSPEND_LIMIT }.into())) {
                        tracing::error!(database, %error, "cannot make the server read-only; killing it");
                        return TurnEnd::Restart;
                    }
                    suspended = true;
                }
                reason = &mut hold => {
                    tracing::warn!(database, error = %reason, "Lease lost: another server is active; restarting as a backup");
                    return TurnEnd::Restart;
                }
                () = shutdown.wait() => return TurnEnd::Shutdown,
                exit = process.wait() => return self.exited(process, &exit),
                () = &mut hung => {
                    tracing::error!(database, "the active server does not answer; releasing the Lease, restarting it as a backup");
                    self.not_ready("the active server does not answer");
                    return TurnEnd::Restart;
                }
                Ok(()) = renewals.changed(), if suspended => {
                    if let Err(error) = self.control.resume().await {
                        tracing::error!(database, %error, "cannot make the server writable again; restarting it");
                        return TurnEnd::Restart;
                    }
                    tracing::info!(database, "the Lease is renewed; accepting writes again");
                    self.set_role(Role::Active);
                    self.ready();
                    suspended = false;
                }
                Ok(()) = self.active.changed() => self.ensure_published(false).await,
                _ = ticks.tick() => {
                    tick = tick.wrapping_add(1);
                    if !suspended {
                        self.show_nodes();
                    }
                    // A deleted EndpointSlice is not a change to its watchers: they keep the last list.
                    self.ensure_published(tick.is_multiple_of(RECORD_PERIOD)).await;
                    if tick.is_multiple_of(RECORD_PERIOD) {
                        self.ensure_recorded();
                    }
                }
            }
        }
    }

    /// An active server is not ready while nodes cannot connect.
    fn show_nodes(&self) {
        let Some(nodes) = &self.nodes else { return };
        match nodes.problem() {
            Some(ListenerProblem::Port(error) | ListenerProblem::Files(error)) => {
                self.condition.not_ready(format!("the port for nodes is closed: {error}"));
            }
            None => self.condition.ready(),
        }
    }

    /// Records the database again if its record was deleted: a backup without data would take its own file for the database.
    /// In a task of its own, because the Lease must be renewed meanwhile.
    fn ensure_recorded(&self) {
        let (store, kind) = (self.store.clone(), self.options.kind);
        let record = Record::new(self.marker.database_id.clone(), &self.options.member);
        tokio::spawn(async move {
            match store.create(kind, &record).await {
                Ok(true) => {
                    tracing::warn!(database = kind.name(), "the record of the database was deleted; restored it");
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(database = kind.name(), %error, "cannot check the record of the database; checking again in 15s");
                }
            }
        });
    }

    /// Publishes this server, unless the API names it already; `again` in any case.
    async fn ensure_published(&mut self, again: bool) {
        let named = self.active.borrow_and_update().as_deref() == Some(std::slice::from_ref(&self.own));
        if named && !again {
            return;
        }
        let options = &self.options;
        // The Lease is renewed meanwhile only if this does not take long.
        let api = self.api.with_timeout(PERIOD);
        match publish(&api, options, &self.service).await {
            Ok(()) if named => {}
            Ok(()) => {
                tracing::info!(database = options.kind.name(), service = self.service, "published the active server");
            }
            Err(error) => {
                tracing::warn!(database = options.kind.name(), service = self.service, %error, "cannot publish the active server; retrying");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_stop_before_another_server_may_become_active() {
        let now = Instant::now();
        assert_eq!(suspend_at(Some(now), now), now + SUSPEND_AFTER);
        assert_eq!(suspend_at(None, now), now, "without the Lease at once");
    }
}
