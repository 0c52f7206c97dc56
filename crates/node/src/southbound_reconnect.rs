//! Ends ovn-controller's wait for the southbound database.
//!
//! ovn-controller tries the servers one after the other, and doubles its backoff, up to 8 s, each time that it finds none or
//! one without a leader. It notices the end of an election seconds later. The agent asks all servers at once. If one serves
//! the database and ovn-controller is still disconnected, the agent writes the same servers to `ovn-remote` in another order:
//! for ovn-controller that is a new list, which it tries without a backoff. Its flows stay.

use std::time::Duration;

use backoff::{Backoff, Retries};
use ovn_schema::southbound;
use ovsdb::client::{Client, Config, Remote, TlsFiles, is_served};
use tokio::time::Instant;

use crate::host_settings;

/// ovn-controller tries each server once without a delay. It is left alone for this long.
const GRACE: Duration = Duration::from_millis(500);
/// How long the servers are asked.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Between two reorders. Longer each time: if the database is served and ovn-controller refuses it all the same, its certificate
/// may be wrong.
const INTERVAL: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(30));

/// When to intervene. Pure: the time is an input.
#[derive(Debug)]
pub(crate) struct SouthboundReconnect {
    /// When to intervene next, while ovn-controller is disconnected.
    due: Option<Instant>,
    intervals: Retries,
}

impl SouthboundReconnect {
    pub(crate) fn new() -> Self {
        Self { due: None, intervals: Retries::new(INTERVAL) }
    }

    /// ovn-controller is connected, or nothing is known of it.
    pub(crate) fn reset(&mut self) {
        self.due = None;
        self.intervals.reset();
    }

    /// ovn-controller is disconnected; whether to ask its servers now.
    fn is_due(&mut self, now: Instant) -> bool {
        now >= *self.due.get_or_insert(now + GRACE)
    }

    /// ovn-controller was given a new list.
    fn reordered(&mut self, now: Instant) {
        self.due = Some(now + self.intervals.next_delay());
    }

    /// ovn-controller is disconnected: makes it connect at once if a server serves the database.
    pub(crate) async fn intervene(&mut self, switch: &Client, tls: Option<&TlsFiles>) {
        if !self.is_due(Instant::now()) {
            return;
        }
        let snapshot = switch.snapshot();
        let remotes = host_settings::remote(&snapshot).and_then(|remotes| Remote::parse_list(&remotes).ok());
        let Some(remotes) = remotes else { return };
        let mut config = Config::new(remotes, southbound::DATABASE.name);
        config.tls = tls.cloned();
        if !is_served(&config, ASK_LIMIT).await {
            return;
        }
        let Some(transaction) = host_settings::plan_reorder(&snapshot) else { return };
        self.reordered(Instant::now());
        match switch.transact(&transaction).await {
            Ok(_) => tracing::info!(
                "a southbound server works while ovn-controller is disconnected; reordered ovn-remote so that it connects at once"
            ),
            Err(error) => {
                tracing::warn!(%error, "cannot reorder ovn-remote; ovn-controller connects after its backoff");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ovn_controller_has_time_to_connect_by_itself_and_after_each_reorder() {
        let (mut reconnect, start) = (SouthboundReconnect::new(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert!(!reconnect.is_due(at(0)) && !reconnect.is_due(at(499)) && reconnect.is_due(at(500)));
        // No server worked: asked again at the next check.
        assert!(reconnect.is_due(at(700)));
        reconnect.reordered(at(700));
        assert!(!reconnect.is_due(at(1600)) && reconnect.is_due(at(2700)));
        reconnect.reordered(at(2700));
        assert!(!reconnect.is_due(at(4600)) && reconnect.is_due(at(6700)));
        reconnect.reset();
        assert!(!reconnect.is_due(at(6800)) && reconnect.is_due(at(7300)));
    }
}
