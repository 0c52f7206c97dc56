//! Decides when a leader hands its leadership over, so that one member leads both databases. Pure.
//!
//! ovsdb-server chooses the successor itself, so one attempt may not be enough. Each costs its clients a reconnect. So
//! leaders are left alone unless both databases have been healthy for a while, and each attempt waits twice as long as the
//! one before.

use std::time::{Duration, Instant};

use backoff::Backoff;

use crate::kind::Kind;

/// What a manager sees of both databases.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Leaders {
    /// Servers in the raft configuration.
    pub(crate) members: usize,
    /// Whether this member leads this database.
    pub(crate) leads: bool,
    /// Whether all its members are alive, and nothing is wrong.
    pub(crate) healthy: bool,
    /// Whether this member also leads the other database.
    pub(crate) leads_other: bool,
    /// Whether this member's server of the other database is part of a quorum.
    pub(crate) other_healthy: bool,
}

/// Decides when to hand over.
#[derive(Debug)]
pub(crate) struct Handover {
    /// Waits before the attempts.
    waits: Backoff,
    apart_since: Option<Instant>,
    attempts: u32,
}

/// The longest wait between attempts is this many times the first.
const LONGEST: u32 = 256;

impl Handover {
    /// The northbound database moves first: a change of its leader concerns the controller and northd only.
    pub(crate) fn new(kind: Kind) -> Self {
        let first = match kind {
            Kind::Northbound => Duration::from_secs(120),
            Kind::Southbound => Duration::from_secs(600),
        };
        Self { waits: Backoff::new(first, first * LONGEST), apart_since: None, attempts: 0 }
    }

    /// Whether to hand over now.
    pub(crate) fn decide(&mut self, leaders: Leaders, now: Instant) -> bool {
        if leaders.leads && leaders.leads_other {
            self.attempts = 0;
        }
        let apart = leaders.leads && !leaders.leads_other && leaders.members > 1;
        if !(apart && leaders.healthy && leaders.other_healthy) {
            self.apart_since = None;
            return false;
        }
        let since = *self.apart_since.get_or_insert(now);
        if now.saturating_duration_since(since) < self.waits.delay(self.attempts, 1.0) {
            return false;
        }
        self.attempts += 1;
        self.apart_since = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APART: Leaders = Leaders { members: 3, leads: true, healthy: true, leads_other: false, other_healthy: true };

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    #[test]
    fn a_leader_hands_over_after_a_quiet_time_and_waits_longer_each_time() {
        let (start, mut handover) = (Instant::now(), Handover::new(Kind::Northbound));
        let mut at = Vec::new();
        for minute in 0..30 {
            if handover.decide(APART, start + minutes(minute)) {
                at.push(minute);
            }
        }
        assert_eq!(at, [2, 7, 16]);
        let together = Leaders { leads_other: true, ..APART };
        assert!(!handover.decide(together, start + minutes(30)));
        assert!(!handover.decide(APART, start + minutes(31)));
        assert!(handover.decide(APART, start + minutes(33)), "the waits start over when both are together");
    }

    #[test]
    fn nothing_moves_during_a_problem_or_without_need() {
        for leaders in [
            Leaders { leads: false, ..APART },
            Leaders { healthy: false, ..APART },
            Leaders { other_healthy: false, ..APART },
            Leaders { leads_other: true, ..APART },
            Leaders { members: 1, ..APART },
        ] {
            let (start, mut handover) = (Instant::now(), Handover::new(Kind::Southbound));
            let moved = (0..600).any(|minute| handover.decide(leaders, start + minutes(minute)));
            assert!(!moved, "{leaders:?}");
        }
        // A problem in between restarts the quiet time.
        let (start, mut handover) = (Instant::now(), Handover::new(Kind::Northbound));
        assert!(!handover.decide(APART, start));
        assert!(!handover.decide(Leaders { healthy: false, ..APART }, start + minutes(1)));
        assert!(!handover.decide(APART, start + minutes(2)));
        assert!(!handover.decide(APART, start + minutes(3)));
        assert!(handover.decide(APART, start + minutes(4)));
    }
}
