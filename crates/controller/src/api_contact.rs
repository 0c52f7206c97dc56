//! Whether this instance is in contact with the API server, so that it may judge the heartbeats of nodes.
//!
//! ```text
//!                  no contact                   contact again                 grace is over
//!   Judging ───────────────────────▶ Lost ───────────────────────▶ Grace ───────────────────────▶ Judging
//!                                      ▲─────────no contact──────────┘
//! ```
//!
//! A leader goes on leading without the API server. It then sees no heartbeat of any node, and afterwards the agents, which
//! were perhaps cut off as well, need time to renew theirs.

use std::time::Duration;

/// What is known about the contact; times are those of the caller's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Evidence {
    /// Since when the watch of nodes has failed.
    pub(crate) watch_failed: Option<Duration>,
    /// When the leader Lease was renewed last. A leader without the API server cannot renew it.
    pub(crate) renewed: Option<Duration>,
    /// Contact is lost after this time without a renewal, or with a failed watch. It ignores the restart of a server:
    /// agents may miss a renewal or two.
    pub(crate) limit: Duration,
}

impl Evidence {
    /// Since when there is no contact; `None` if there is.
    fn no_contact_since(&self, now: Duration) -> Option<Duration> {
        let known = self.watch_failed.into_iter().chain(self.renewed);
        known.filter(|since| now.saturating_sub(*since) > self.limit).min()
    }
}

/// The contact as it was last reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ApiContact {
    /// In contact: heartbeats are judged.
    #[default]
    Judging,
    /// No contact since this time.
    Lost(Duration),
    /// In contact again; heartbeats are judged from this time on.
    Grace(Duration),
}

/// A change that is worth a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContactChange {
    /// Heartbeats are no longer judged; no contact since this time.
    Lost(Duration),
    /// They are judged again.
    Judging,
}

impl ApiContact {
    /// The next state, and what to log. `grace` is the time that healthy agents may need for a heartbeat.
    pub(crate) fn next(self, evidence: Evidence, now: Duration, grace: Duration) -> (Self, Option<ContactChange>) {
        match (evidence.no_contact_since(now), self) {
            (Some(since), Self::Judging) => (Self::Lost(since), Some(ContactChange::Lost(since))),
            (Some(_), Self::Lost(since)) => (Self::Lost(since), None),
            // Not judged meanwhile: it was logged before.
            (Some(since), Self::Grace(_)) => (Self::Lost(since), None),
            (None, Self::Lost(_)) => (Self::Grace(now + grace), None),
            (None, Self::Grace(until)) if now >= until => (Self::Judging, Some(ContactChange::Judging)),
            (None, state) => (state, None),
        }
    }

    /// Whether an expired heartbeat is the fault of the node.
    pub(crate) fn may_judge(self) -> bool {
        self == Self::Judging
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: u64 = 100;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn evidence(watch_failed: Option<u64>, renewed: Option<u64>) -> Evidence {
        Evidence { watch_failed: watch_failed.map(seconds), renewed: renewed.map(seconds), limit: seconds(20) }
    }

    fn step(contact: &mut ApiContact, evidence: Evidence, now: u64) -> Option<ContactChange> {
        let (next, change) = contact.next(evidence, seconds(now), seconds(GRACE));
        *contact = next;
        change
    }

    #[test]
    fn a_leader_that_cannot_renew_its_lease_does_not_judge() {
        let mut contact = ApiContact::default();
        let renewed = evidence(None, Some(1000));
        assert_eq!(step(&mut contact, renewed, 1020), None);
        assert!(contact.may_judge());
        assert_eq!(step(&mut contact, renewed, 1021), Some(ContactChange::Lost(seconds(1000))));
        assert!(!contact.may_judge());
        // Logged once.
        assert_eq!(step(&mut contact, renewed, 5000), None);
        assert!(!contact.may_judge());
    }

    #[test]
    fn heartbeats_are_judged_again_after_the_grace_period() {
        let mut contact = ApiContact::Lost(seconds(1000));
        assert_eq!(step(&mut contact, evidence(None, Some(2000)), 2000), None);
        assert!(!contact.may_judge());
        assert_eq!(step(&mut contact, evidence(None, Some(2090)), 2099), None);
        assert!(!contact.may_judge());
        assert_eq!(step(&mut contact, evidence(None, Some(2090)), 2100), Some(ContactChange::Judging));
        assert!(contact.may_judge());
        assert_eq!(step(&mut contact, evidence(None, Some(2100)), 2101), None);
    }

    #[test]
    fn a_loss_in_the_grace_period_starts_it_again_without_another_log_line() {
        let mut contact = ApiContact::Grace(seconds(2100));
        assert_eq!(step(&mut contact, evidence(Some(2050), Some(2070)), 2071), None);
        assert_eq!(contact, ApiContact::Lost(seconds(2050)));
        assert_eq!(step(&mut contact, evidence(None, Some(2200)), 2200), None);
        assert_eq!(contact, ApiContact::Grace(seconds(2200 + GRACE)));
    }

    #[test]
    fn a_failed_watch_of_nodes_suffices() {
        let mut contact = ApiContact::default();
        // Not at once: a restart of the API server.
        assert_eq!(step(&mut contact, evidence(Some(990), Some(1000)), 1010), None);
        assert_eq!(step(&mut contact, evidence(Some(990), Some(1000)), 1011), Some(ContactChange::Lost(seconds(990))));
        let mut contact = ApiContact::default();
        // A standby has no Lease to renew.
        assert_eq!(step(&mut contact, evidence(None, None), 1000), None);
        assert!(contact.may_judge());
    }
}
