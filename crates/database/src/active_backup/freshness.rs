//! The takeover delay of a backup: how long it leaves a free Lease to others. Pure: the time is an input.
//!
//! A member that was down for a week has all data of a week ago. If it became active, the others would replicate that. It
//! therefore waits until members that replicated lately, or were active last, could have acquired the Lease.

use std::time::{Duration, Instant};

/// A copy that was up to date within this time is as good as any.
const FRESH: Duration = Duration::from_secs(60);
/// How much longer a member with a stale copy waits for the Lease.
const STALE_DELAY: Duration = Duration::from_secs(60);

/// What is known about the age of a member's data.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    replicating: bool,
    replicated: Option<Instant>,
    last_active: bool,
}

impl Freshness {
    /// `last_active`: the server that the API names as active is this one, or there is none yet.
    pub(crate) fn note(&mut self, replicating: bool, last_active: bool, now: Instant) {
        (self.replicating, self.last_active) = (replicating, last_active);
        if replicating {
            self.replicated = Some(now);
        }
    }

    pub(crate) fn is_replicating(&self) -> bool {
        self.replicating
    }

    /// How long after its expiry this member leaves the Lease to others.
    pub(crate) fn takeover_delay(&self, now: Instant) -> Duration {
        let fresh = self.replicated.is_some_and(|replicated| now.saturating_duration_since(replicated) < FRESH);
        if fresh || self.last_active { Duration::ZERO } else { STALE_DELAY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_copy_lets_others_go_first() {
        let start = Instant::now();
        let mut freshness = Freshness::default();
        freshness.note(false, false, start);
        assert_eq!(freshness.takeover_delay(start), STALE_DELAY, "just started, and another server was active last");
        freshness.note(true, false, start);
        assert_eq!(freshness.takeover_delay(start), Duration::ZERO);
        // The active server dies: its Lease expires long before the copy counts as old.
        freshness.note(false, false, start + Duration::from_secs(30));
        assert_eq!(freshness.takeover_delay(start + Duration::from_secs(30)), Duration::ZERO);
        assert_eq!(freshness.takeover_delay(start + FRESH), STALE_DELAY, "cut off from an active server");
        freshness.note(false, true, start + FRESH);
        assert_eq!(freshness.takeover_delay(start + FRESH), Duration::ZERO, "it was active last itself");
    }
}
