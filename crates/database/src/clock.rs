//! Detects jumps of the wall clock: it must advance as the monotonic clock does.
//!
//! Raft itself uses the monotonic clock. Certificates, Leases and the times in logs and Events use the wall clock, so a jump
//! explains failures that seem to have no cause.

use std::time::{Duration, Instant, SystemTime};

use crate::finding::{Finding, FindingKind};

/// Smaller differences are corrections of NTP.
const JUMP: Duration = Duration::from_secs(5);
/// How long a jump is reported.
const REPORTED: Duration = Duration::from_secs(600);

/// Compares how far both clocks advanced between two checks.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    last: (Instant, SystemTime),
    jump: Option<(Instant, String)>,
}

impl ClockWatch {
    pub(crate) fn new(now: Instant, wall: SystemTime) -> Self {
        Self { last: (now, wall), jump: None }
    }

    /// Reports a jump since the last check, and recent ones.
    pub(crate) fn check(&mut self, now: Instant, wall: SystemTime) -> Vec<Finding> {
        let (before, wall_before) = std::mem::replace(&mut self.last, (now, wall));
        let expected = wall_before + now.saturating_duration_since(before);
        let (direction, by) = match wall.duration_since(expected) {
            Ok(ahead) => ("forwards", ahead),
            Err(behind) => ("backwards", behind.duration()),
        };
        if by >= JUMP {
            let message = format!(
                "the clock of this node jumped {direction} by {} s; certificates may count as expired or not valid yet, and \
                 Leases as expired; check time synchronization (chrony, or the hypervisor after a suspend)",
                by.as_secs()
            );
            self.jump = Some((now, message));
        }
        let recent = self.jump.iter().filter(|(at, _)| now.saturating_duration_since(*at) < REPORTED);
        recent.map(|(_, message)| Finding::new(FindingKind::ClockJump, message.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_in_either_direction_is_reported_for_ten_minutes() {
        let (start, wall) = (Instant::now(), SystemTime::now());
        let seconds = Duration::from_secs;
        let mut clock = ClockWatch::new(start, wall);
        // Five seconds later, with NTP's small corrections.
        assert_eq!(clock.check(start + seconds(5), wall + seconds(6)), []);
        let found = clock.check(start + seconds(10), wall + seconds(3611));
        assert!(found[0].message.contains("forwards by 3600 s"), "{found:?}");
        assert_eq!(clock.check(start + seconds(15), wall + seconds(3616)).len(), 1, "still reported");
        assert_eq!(clock.check(start + seconds(620), wall + seconds(4221)), []);
        let found = clock.check(start + seconds(625), wall);
        assert!(found[0].message.contains("backwards by 4226 s"), "{found:?}");
    }
}
