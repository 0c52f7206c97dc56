//! Who may take a lease, and who still has it: pure, with the time as an input.
//!
//! Only our own monotonic clock is asked, and only for how long a lease has *not changed*. What times others wrote is
//! never compared with ours, so a clock that jumps, here or there, changes nothing.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lease::record::{Record, Term};

/// A holder that is known to be gone is replaced when its lease has not changed for this long: longer than a renewal
/// takes, much shorter than a lease lasts.
const GRACE: Duration = Duration::from_secs(3);
/// What is believed of a foreign lease's duration, whatever is written in it.
const SANE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What a candidate does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is known yet; look.
    Look,
    /// There is no Lease; create it.
    Create,
    /// Nobody holds it any more, or it is ours; take it.
    Take,
    /// The holder has not renewed it in time, as far as we can see. Check that we can see well, then take it.
    TakeExpired,
    /// Somebody holds it for at least so long.
    Wait(Duration),
}

/// One who wants the lease.
#[derive(Debug)]
pub(crate) struct Candidate {
    identity: String,
    /// For how long a lease is believed that does not say.
    usual: Duration,
    /// Whether a holder of our own name is somebody else.
    twin: bool,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    Nothing,
    Absent,
    Held { term: Term, holder: String, duration: Duration, since: Instant },
}

impl Candidate {
    pub(crate) fn new(identity: &str, usual: Duration, twin: bool) -> Self {
        Self { identity: identity.to_owned(), usual, twin, seen: Seen::Nothing }
    }

    /// Takes in what the lease is now. Returns what is odd about it, once for each change.
    pub(crate) fn observe(&mut self, record: Option<&Record>, now: Instant) -> Option<String> {
        let Some(record) = record else {
            self.seen = Seen::Absent;
            return None;
        };
        let term = record.term();
        if let Seen::Held { term: before, .. } = &self.seen
            && *before == term
        {
            return None;
        }
        let holder = record.holder().to_owned();
        let (duration, odd) = believed(record.seconds(), self.usual);
        // Of a lease that nobody holds, the duration is of no interest.
        let odd = odd.filter(|_| !holder.is_empty());
        self.seen = Seen::Held { term, holder, duration, since: now };
        odd
    }

    /// `gone` tells since when the holder is known, by other means than the Lease, not to be there.
    pub(crate) fn step(&self, now: Instant, gone: Option<Instant>) -> Step {
        match &self.seen {
            Seen::Nothing => Step::Look,
            Seen::Absent => Step::Create,
            Seen::Held { holder, .. } if holder.is_empty() || (*holder == self.identity && !self.twin) => Step::Take,
            Seen::Held { duration, since, .. } => {
                let left = |limit: Duration, since: Instant| limit.saturating_sub(now.saturating_duration_since(since));
                let expires = left(*duration, *since);
                let replaced = gone.map(|gone| left(GRACE.min(*duration), gone.max(*since)));
                match replaced {
                    Some(Duration::ZERO) => Step::Take,
                    _ if expires.is_zero() => Step::TakeExpired,
                    Some(replaced) => Step::Wait(expires.min(replaced)),
                    None => Step::Wait(expires),
                }
            }
        }
    }

    /// What was seen of the lease came too slowly to tell anything about its holder: the holder gets its time anew.
    pub(crate) fn distrust(&mut self, now: Instant) {
        if let Seen::Held { since, .. } = &mut self.seen {
            *since = now;
        }
    }
}

/// How long a lease is believed to be held, and what is odd if that is not what it says.
fn believed(seconds: &Value, usual: Duration) -> (Duration, Option<String>) {
    let believed = match seconds.as_i64() {
        Some(told) => Duration::from_secs(told.max(0).unsigned_abs()).clamp(SANE.0, SANE.1),
        None => usual.clamp(SANE.0, SANE.1),
    };
    let told = seconds.as_i64().and_then(|told| u64::try_from(told).ok()).map(Duration::from_secs);
    let odd = (told != Some(believed))
        .then(|| format!("spec.leaseDurationSeconds is {seconds}; {} s are assumed", believed.as_secs_f64()));
    (believed, odd)
}

/// Why a lease is not held any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    /// The caller asked to stop; the lease is still ours until it is released or runs out.
    #[error("asked to stop")]
    Stopped,
    /// Somebody else has it.
    #[error("it is held by {by}")]
    Taken {
        /// Who.
        by: String,
    },
    /// Another process calls itself as we do, or somebody edited the times by hand.
    #[error("somebody else renews it under our identity; identities must be unique")]
    Twin,
    /// Somebody took our name out of it.
    #[error("its holderIdentity was emptied by somebody else")]
    Cleared,
    /// The Lease object, or its namespace, was deleted.
    #[error("the Lease was deleted")]
    Deleted,
    /// It was not held to begin with.
    #[error("it was not held")]
    NotHeld,
}

/// Whether a lease that is not as we left it is still ours. `ours` are the renew times that we wrote or tried to write.
pub(crate) fn still_ours(record: Option<&Record>, identity: &str, ours: &[String]) -> Result<(), LossReason> {
    let Some(record) = record else { return Err(LossReason::Deleted) };
    match record.holder() {
        "" => Err(LossReason::Cleared),
        holder if holder != identity => Err(LossReason::Taken { by: holder.to_owned() }),
        _ if ours.iter().any(|time| time == record.renew_time()) => Ok(()),
        _ => Err(LossReason::Twin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_secs(4);

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
    fn nothing_is_done_before_anything_is_known() {
        assert_eq!(Candidate::new("me", USUAL, false).step(Instant::now(), None), Step::Look);
    }

    #[test]
    fn a_missing_lease_is_created_and_a_free_one_taken() {
        let now = Instant::now();
        let mut me = Candidate::new("me", USUAL, false);
        assert_eq!(me.observe(None, now), None);
        assert_eq!(me.step(now, None), Step::Create);
        assert_eq!(me.observe(Some(&lease("", "0", "a")), now), None);
        assert_eq!(me.step(now, None), Step::Take);
    }

    #[test]
    fn a_held_lease_is_taken_when_it_has_not_changed_for_its_duration() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, false);
        me.observe(Some(&lease("other", "4", "a")), start);
        assert_eq!(me.step(start, None), Step::Wait(Duration::from_secs(4)));
        assert_eq!(me.step(after(start, 3999), None), Step::Wait(Duration::from_millis(1)));
        assert_eq!(me.step(after(start, 4000), None), Step::TakeExpired);
        // A renewal in the last moment starts it anew.
        me.observe(Some(&lease("other", "4", "b")), after(start, 3999));
        assert_eq!(me.step(after(start, 4000), None), Step::Wait(Duration::from_millis(3999)));
        // Seeing the same again does not.
        me.observe(Some(&lease("other", "4", "b")), after(start, 7000));
        assert_eq!(me.step(after(start, 7999), None), Step::TakeExpired);
    }

    #[test]
    fn clocks_that_jump_change_nothing() {
        let start = Instant::now();
        // However far the holder's clock is off, a renewal is a change and its absence is not.
        for times in
            [["2001-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z"], ["9999-12-31T23:59:59.999999Z", ""]]
        {
            let mut me = Candidate::new("me", USUAL, false);
            me.observe(Some(&lease("other", "4", times[0])), start);
            assert_eq!(me.step(after(start, 1), None), Step::Wait(Duration::from_millis(3999)), "{times:?}");
            me.observe(Some(&lease("other", "4", times[1])), after(start, 3000));
            assert_eq!(me.step(after(start, 6999), None), Step::Wait(Duration::from_millis(1)), "{times:?}");
            assert_eq!(me.step(after(start, 7000), None), Step::TakeExpired, "{times:?}");
        }
        // A time before the observation (which a monotonic clock does not give) waits, and does not panic.
        let mut me = Candidate::new("me", USUAL, false);
        me.observe(Some(&lease("other", "4", "a")), after(start, 5000));
        assert_eq!(me.step(start, None), Step::Wait(USUAL));
    }

    #[test]
    fn absurd_durations_are_clamped_and_named() {
        let now = Instant::now();
        for (told, believed) in [
            ("0", 1),
            ("-7", 1),
            ("1000000000", 60),
            ("null", 4),
            ("\"x\"", 4),
            ("1.5", 4),
            ("9223372036854775807", 60),
        ] {
            let mut me = Candidate::new("me", USUAL, false);
            let odd = me.observe(Some(&lease("other", told, "a")), now).unwrap();
            assert!(odd.contains("spec.leaseDurationSeconds") && odd.contains(told), "{odd}");
            assert_eq!(me.step(now, None), Step::Wait(Duration::from_secs(believed)), "{told}");
            assert_eq!(me.observe(Some(&lease("other", told, "a")), now), None, "told twice");
        }
        for sane in ["1", "4", "15", "60"] {
            assert_eq!(Candidate::new("me", USUAL, false).observe(Some(&lease("other", sane, "a")), now), None);
        }
    }

    #[test]
    fn labels_and_annotations_renew_nothing() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, false);
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
    fn our_own_lease_is_taken_at_once_unless_a_twin_has_it() {
        let start = Instant::now();
        let mut restarted = Candidate::new("me", USUAL, false);
        restarted.observe(Some(&lease("me", "4", "a")), start);
        assert_eq!(restarted.step(start, None), Step::Take);
        let mut twin = Candidate::new("me", USUAL, true);
        twin.observe(Some(&lease("me", "4", "a")), start);
        assert_eq!(twin.step(start, None), Step::Wait(USUAL));
        assert_eq!(twin.step(after(start, 4000), None), Step::TakeExpired);
    }

    #[test]
    fn a_lease_that_was_deleted_or_emptied_meanwhile_is_there_for_the_taking() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, false);
        me.observe(Some(&lease("other", "4", "a")), start);
        me.observe(None, after(start, 10));
        assert_eq!(me.step(after(start, 10), None), Step::Create);
        // Somebody else was quicker.
        me.observe(Some(&lease("third", "4", "b")), after(start, 20));
        assert_eq!(me.step(after(start, 20), None), Step::Wait(USUAL));
    }

    #[test]
    fn a_conflict_is_judged_by_who_holds_it_now() {
        let ours = ["a".to_owned(), "b".to_owned()];
        assert_eq!(still_ours(Some(&lease("me", "4", "b")), "me", &ours), Ok(()));
        assert_eq!(still_ours(Some(&lease("me", "999", "a")), "me", &ours), Ok(()));
        assert_eq!(still_ours(Some(&lease("me", "4", "c")), "me", &ours), Err(LossReason::Twin));
        assert_eq!(still_ours(Some(&lease("", "4", "b")), "me", &ours), Err(LossReason::Cleared));
        assert_eq!(still_ours(None, "me", &ours), Err(LossReason::Deleted));
        let taken = LossReason::Taken { by: "other".into() };
        assert_eq!(still_ours(Some(&lease("other", "4", "b")), "me", &ours), Err(taken));
        assert_eq!(still_ours(Some(&Record::read("{}").unwrap()), "me", &ours), Err(LossReason::Cleared));
    }

    #[test]
    fn a_holder_that_is_gone_is_replaced_long_before_its_lease_ends() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, false);
        me.observe(Some(&lease("other", "15", "a")), start);
        let gone = Some(after(start, 1000));
        assert_eq!(me.step(after(start, 1000), gone), Step::Wait(GRACE));
        assert_eq!(me.step(after(start, 3999), gone), Step::Wait(Duration::from_millis(1)));
        assert_eq!(me.step(after(start, 4000), gone), Step::Take);
        // One that renews is not gone, whatever else is said.
        me.observe(Some(&lease("other", "15", "b")), after(start, 3999));
        assert_eq!(me.step(after(start, 4000), gone), Step::Wait(Duration::from_millis(2999)));
        // Nothing else is known of it: its lease counts.
        assert_eq!(me.step(after(start, 18_998), None), Step::Wait(Duration::from_millis(1)));
        assert_eq!(me.step(after(start, 18_999), None), Step::TakeExpired);
        // A short lease is never prolonged by it.
        me.observe(Some(&lease("other", "1", "c")), start);
        assert_eq!(me.step(after(start, 1000), Some(start)), Step::Take);
    }

    #[test]
    fn a_holder_gets_its_time_anew_when_we_could_not_see_it() {
        let start = Instant::now();
        let mut me = Candidate::new("me", USUAL, false);
        me.observe(Some(&lease("other", "4", "a")), start);
        assert_eq!(me.step(after(start, 4000), None), Step::TakeExpired);
        me.distrust(after(start, 4000));
        assert_eq!(me.step(after(start, 4000), None), Step::Wait(USUAL));
    }
}
