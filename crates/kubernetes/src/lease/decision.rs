//! When a candidate may take a Lease, and whether a holder still has it. Pure: the time is an input.
//!
//! Only the local monotonic clock is used, to measure how long a Lease has *not changed*. Times written by others are
//! never compared with local ones, so wrong or jumping clocks have no effect.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lease::record::{Record, Term};

/// A holder that is known to be gone is replaced if its Lease has not changed for the interval of renewals and this long.
const GRACE: Duration = Duration::from_millis(500);
/// Bounds of the lease duration of another holder.
const SANE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Next step of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The Lease was not read yet; read it.
    Read,
    /// The Lease does not exist; create it.
    Create,
    /// The Lease has no holder, or is ours; take it.
    Take,
    /// The holder did not renew in time, as far as is known. Read it once more, then take it.
    TakeExpired,
    /// Another holder has it for at least this long.
    Wait(Duration),
}

/// Observations of a process that wants the Lease.
#[derive(Debug)]
pub(crate) struct Candidate {
    identity: String,
    /// Lease duration if the Lease has none.
    usual: Duration,
    /// Whether another process uses our identity.
    twin: bool,
    /// How long the Lease of a holder that is known to be gone must not have changed.
    grace: Duration,
    /// How much longer than others this process waits for a Lease without a holder.
    takeover_delay: Duration,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    Nothing,
    Absent { since: Instant },
    Held { term: Term, holder: String, duration: Duration, since: Instant },
}

impl Candidate {
    /// `renewals` is their interval.
    pub(crate) fn new(identity: &str, usual: Duration, renewals: Duration, twin: bool) -> Self {
        let (grace, takeover_delay) = (renewals + GRACE, Duration::ZERO);
        Self { identity: identity.to_owned(), usual, twin, grace, takeover_delay, seen: Seen::Nothing }
    }

    /// Lets other candidates go first.
    pub(crate) fn with_takeover_delay(self, takeover_delay: Duration) -> Self {
        Self { takeover_delay, ..self }
    }

    /// Records the current Lease. Returns a problem of it, once per change.
    pub(crate) fn observe(&mut self, record: Option<&Record>, now: Instant) -> Option<String> {
        let Some(record) = record else {
            if !matches!(self.seen, Seen::Absent { .. }) {
                self.seen = Seen::Absent { since: now };
            }
            return None;
        };
        let term = record.term();
        if let Seen::Held { term: before, .. } = &self.seen
            && *before == term
        {
            return None;
        }
        let holder = record.holder().to_owned();
        let (duration, problem) = effective(record.seconds(), self.usual);
        // Without a holder, the duration does not matter.
        let problem = problem.filter(|_| !holder.is_empty());
        self.seen = Seen::Held { term, holder, duration, since: now };
        problem
    }

    /// `gone`: since when the holder is known, by other means than the Lease, to be gone.
    pub(crate) fn step(&self, now: Instant, gone: Option<Instant>) -> Step {
        let left = |limit: Duration, since: Instant| limit.saturating_sub(now.saturating_duration_since(since));
        match &self.seen {
            Seen::Nothing => Step::Read,
            Seen::Absent { since } => match left(self.takeover_delay, *since) {
                Duration::ZERO => Step::Create,
                wait => Step::Wait(wait),
            },
            Seen::Held { holder, .. } if *holder == self.identity && !self.twin => Step::Take,
            Seen::Held { holder, since, .. } if holder.is_empty() => match left(self.takeover_delay, *since) {
                Duration::ZERO => Step::Take,
                wait => Step::Wait(wait),
            },
            Seen::Held { duration, since, .. } => {
                let expires = left(*duration + self.takeover_delay, *since);
                let replaced = gone.map(|gone| left(self.grace.min(*duration) + self.takeover_delay, gone.max(*since)));
                match replaced {
                    Some(Duration::ZERO) => Step::Take,
                    _ if expires.is_zero() => Step::TakeExpired,
                    Some(replaced) => Step::Wait(expires.min(replaced)),
                    None => Step::Wait(expires),
                }
            }
        }
    }

    /// Observations were too slow to judge the holder: its lease duration starts over.
    pub(crate) fn restart_duration(&mut self, now: Instant) {
        if let Seen::Held { since, .. } = &mut self.seen {
            *since = now;
        }
    }
}

/// Effective lease duration, and the problem if it differs from the Lease.
fn effective(seconds: &Value, usual: Duration) -> (Duration, Option<String>) {
    let effective = match seconds.as_i64() {
        Some(given) => Duration::from_secs(given.max(0).unsigned_abs()).clamp(SANE.0, SANE.1),
        None => usual.clamp(SANE.0, SANE.1),
    };
    let given = seconds.as_i64().and_then(|given| u64::try_from(given).ok()).map(Duration::from_secs);
    let problem = (given != Some(effective))
        .then(|| format!("spec.leaseDurationSeconds is {seconds}; {} s are assumed", effective.as_secs_f64()));
    (effective, problem)
}

/// Why a Lease is no longer held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    /// The caller requested it; the Lease stays ours until it is released or expires.
    #[error("stop requested")]
    Stopped,
    /// Another process has it.
    #[error("held by {by}")]
    Taken {
        /// Identity of the new holder.
        by: String,
    },
    /// Another process has the same identity, or the times were edited by hand.
    #[error("another process renews it with our identity; identities must be unique")]
    DuplicateIdentity,
    /// The holder identity was removed by another client.
    #[error("another client cleared its holderIdentity")]
    Cleared,
    /// The Lease object, or its namespace, was deleted.
    #[error("the Lease was deleted")]
    Deleted,
    /// It was never held.
    #[error("not held")]
    NotHeld,
}

/// Whether a changed Lease is still ours. `ours`: the renew times that were written or may have been written.
pub(crate) fn still_ours(record: Option<&Record>, identity: &str, ours: &[String]) -> Result<(), LossReason> {
    let Some(record) = record else { return Err(LossReason::Deleted) };
    match record.holder() {
        "" => Err(LossReason::Cleared),
        holder if holder != identity => Err(LossReason::Taken { by: holder.to_owned() }),
        _ if ours.iter().any(|time| time == record.renew_time()) => Ok(()),
        _ => Err(LossReason::DuplicateIdentity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_secs(4);
    const RENEWALS: Duration = Duration::from_secs(1);

    fn lease(holder: &str, seconds: &str, renewed: &str) -> Record {
        Record::read(&format!(
            r#"{{"metadata":{{"resourceVersion":"1"}},
                "spec":{{"holderIdentity":"{holder}","leaseDurationSeconds":{seconds},"renewTime":"{renewed}"}}}}"#
        ))
        .unwrap()
    }

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn an_unread_lease_is_read_first() {
        assert_eq!(Candidate::new("me", USUAL, RENEWALS, false).step(Instant::now(), None), Step::Read);
    }

    #[test]
    fn a_missing_lease_is_created_and_one_without_holder_is_taken() {
        let now = Instant::now();
        let mut me = Candidate::new("me", USUAL, RENEWALS, false);
        assert_eq!(me.observe(None, now), None);
        assert_eq!(me.step(now, None), Step::Create);
        assert_eq!(me.observe(Some(&lease("", "0", "a")), now), None);
        assert_eq!(me.step(now, None), Step::Take);
    }

    #[test]
    fn a_held_lease_is_taken_when_it_has_not_changed_for_its_duration() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, RENEWALS, false);
        me.observe(Some(&lease("other", "4", "a")), start);
        assert_eq!(me.step(start, None), Step::Wait(Duration::from_secs(4)));
        assert_eq!(me.step(after(start, 3999), None), Step::Wait(Duration::from_millis(1)));
        assert_eq!(me.step(after(start, 4000), None), Step::TakeExpired);
        // A renewal at the last moment restarts the duration.
        me.observe(Some(&lease("other", "4", "b")), after(start, 3999));
        assert_eq!(me.step(after(start, 4000), None), Step::Wait(Duration::from_millis(3999)));
        // An unchanged Lease does not.
        me.observe(Some(&lease("other", "4", "b")), after(start, 7000));
        assert_eq!(me.step(after(start, 7999), None), Step::TakeExpired);
    }

    #[test]
    fn jumping_clocks_have_no_effect() {
        let start = Instant::now();
        // Whatever the holder's clock, only a change counts as a renewal.
        for times in
            [["2001-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z"], ["9999-12-31T23:59:59.999999Z", ""]]
        {
            let mut me = Candidate::new("me", USUAL, RENEWALS, false);
            me.observe(Some(&lease("other", "4", times[0])), start);
            assert_eq!(me.step(after(start, 1), None), Step::Wait(Duration::from_millis(3999)), "{times:?}");
            me.observe(Some(&lease("other", "4", times[1])), after(start, 3000));
            assert_eq!(me.step(after(start, 6999), None), Step::Wait(Duration::from_millis(1)), "{times:?}");
            assert_eq!(me.step(after(start, 7000), None), Step::TakeExpired, "{times:?}");
        }
        // A time before the observation (impossible with a monotonic clock) does not panic.
        let mut me = Candidate::new("me", USUAL, RENEWALS, false);
        me.observe(Some(&lease("other", "4", "a")), after(start, 5000));
        assert_eq!(me.step(start, None), Step::Wait(USUAL));
    }

    #[test]
    fn absurd_durations_are_clamped_and_reported() {
        let now = Instant::now();
        for (given, effective) in [
            ("0", 1),
            ("-7", 1),
            ("1000000000", 60),
            ("null", 4),
            ("\"x\"", 4),
            ("1.5", 4),
            ("9223372036854775807", 60),
        ] {
            let mut me = Candidate::new("me", USUAL, RENEWALS, false);
            let problem = me.observe(Some(&lease("other", given, "a")), now).unwrap();
            assert!(problem.contains("spec.leaseDurationSeconds") && problem.contains(given), "{problem}");
            assert_eq!(me.step(now, None), Step::Wait(Duration::from_secs(effective)), "{given}");
            assert_eq!(me.observe(Some(&lease("other", given, "a")), now), None, "reported twice");
        }
        for sane in ["1", "4", "15", "60"] {
            assert_eq!(
                Candidate::new("me", USUAL, RENEWALS, false).observe(Some(&lease("other", sane, "a")), now),
                None
            );
        }
    }

    #[test]
    fn labels_and_annotations_do_not_renew() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, RENEWALS, false);
        let text = |version: u32| {
            format!(
                r#"{{"metadata":{{"resourceVersion":"{version}","annotations":{{"v":"{version}"}}}},
                    "spec":{{"holderIdentity":"other","leaseDurationSeconds":4,"renewTime":"a"}}}}"#
            )
        };
        for second in 0..4 {
            me.observe(Some(&Record::read(&text(second)).unwrap()), after(start, u64::from(second) * 1000));
        }
        assert_eq!(me.step(after(start, 4000), None), Step::TakeExpired);
    }

    #[test]
    fn our_own_lease_is_taken_at_once_unless_the_identity_is_duplicated() {
        let start = Instant::now();
        let mut restarted = Candidate::new("me", USUAL, RENEWALS, false);
        restarted.observe(Some(&lease("me", "4", "a")), start);
        assert_eq!(restarted.step(start, None), Step::Take);
        let mut twin = Candidate::new("me", USUAL, RENEWALS, true);
        twin.observe(Some(&lease("me", "4", "a")), start);
        assert_eq!(twin.step(start, None), Step::Wait(USUAL));
        assert_eq!(twin.step(after(start, 4000), None), Step::TakeExpired);
    }

    #[test]
    fn a_lease_that_was_deleted_or_cleared_is_taken_at_once() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, RENEWALS, false);
        me.observe(Some(&lease("other", "4", "a")), start);
        me.observe(None, after(start, 10));
        assert_eq!(me.step(after(start, 10), None), Step::Create);
        // Another process was faster.
        me.observe(Some(&lease("third", "4", "b")), after(start, 20));
        assert_eq!(me.step(after(start, 20), None), Step::Wait(USUAL));
    }

    #[test]
    fn a_conflict_is_resolved_by_the_current_holder() {
        let ours = ["a".to_owned(), "b".to_owned()];
        assert_eq!(still_ours(Some(&lease("me", "4", "b")), "me", &ours), Ok(()));
        assert_eq!(still_ours(Some(&lease("me", "999", "a")), "me", &ours), Ok(()));
        assert_eq!(still_ours(Some(&lease("me", "4", "c")), "me", &ours), Err(LossReason::DuplicateIdentity));
        assert_eq!(still_ours(Some(&lease("", "4", "b")), "me", &ours), Err(LossReason::Cleared));
        assert_eq!(still_ours(None, "me", &ours), Err(LossReason::Deleted));
        let taken = LossReason::Taken { by: "other".into() };
        assert_eq!(still_ours(Some(&lease("other", "4", "b")), "me", &ours), Err(taken));
        assert_eq!(still_ours(Some(&Record::read("{}").unwrap()), "me", &ours), Err(LossReason::Cleared));
    }

    #[test]
    fn a_holder_that_is_gone_is_replaced_before_its_lease_expires() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, RENEWALS, false);
        me.observe(Some(&lease("other", "15", "a")), start);
        let gone = Some(after(start, 1000));
        assert_eq!(me.step(after(start, 1000), gone), Step::Wait(RENEWALS + GRACE));
        assert_eq!(me.step(after(start, 2499), gone), Step::Wait(Duration::from_millis(1)));
        assert_eq!(me.step(after(start, 2500), gone), Step::Take);
        // A holder that renews is not gone.
        me.observe(Some(&lease("other", "15", "b")), after(start, 2499));
        assert_eq!(me.step(after(start, 2500), gone), Step::Wait(Duration::from_millis(1499)));
        // Without other knowledge, the lease duration counts.
        assert_eq!(me.step(after(start, 17_498), None), Step::Wait(Duration::from_millis(1)));
        assert_eq!(me.step(after(start, 17_499), None), Step::TakeExpired);
        // It never prolongs a short lease.
        me.observe(Some(&lease("other", "1", "c")), start);
        assert_eq!(me.step(after(start, 1000), Some(start)), Step::Take);
    }

    #[test]
    fn a_candidate_with_a_takeover_delay_lets_others_go_first() {
        let start = Instant::now();
        let takeover_delay = Duration::from_secs(60);
        let mut me = Candidate::new("me", USUAL, RENEWALS, false).with_takeover_delay(takeover_delay);
        me.observe(None, start);
        // Observing again that it has no holder does not restart the delay.
        me.observe(None, after(start, 1000));
        assert_eq!(me.step(after(start, 1000), None), Step::Wait(Duration::from_secs(59)));
        assert_eq!(me.step(after(start, 60_000), None), Step::Create);
        me.observe(Some(&lease("", "0", "a")), start);
        assert_eq!(me.step(start, None), Step::Wait(takeover_delay));
        assert_eq!(me.step(after(start, 60_000), None), Step::Take);
        me.observe(Some(&lease("other", "4", "b")), start);
        assert_eq!(me.step(after(start, 4000), None), Step::Wait(takeover_delay));
        assert_eq!(me.step(after(start, 64_000), None), Step::TakeExpired);
        // Its own Lease is not for others.
        me.observe(Some(&lease("me", "4", "c")), start);
        assert_eq!(me.step(start, None), Step::Take);
    }

    #[test]
    fn the_duration_restarts_if_observations_were_too_slow() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, RENEWALS, false);
        me.observe(Some(&lease("other", "4", "a")), start);
        assert_eq!(me.step(after(start, 4000), None), Step::TakeExpired);
        me.restart_duration(after(start, 4000));
        assert_eq!(me.step(after(start, 4000), None), Step::Wait(USUAL));
    }
}
