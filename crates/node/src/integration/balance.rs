//! Flows of br-int that somebody else deleted, told from those that ovn-controller deletes itself.
//!
//! ovn-controller deletes each flow by a message of its own, so in any span of time the flows that disappear are no more than
//! the messages that it sends. More of them are somebody else's doing (`ovs-ofctl del-flows br-int` is one message for all).
//! The other way round proves nothing: ovn-controller also sends other messages, so that a few flows deleted while it is busy
//! can go unnoticed.

/// Compares what was deleted with what ovn-controller sent.
#[derive(Debug, Default)]
pub(super) struct Balance {
    /// What ovn-controller had sent two samples ago, and one ago. The older one counts: what was sent just before a sample
    /// may be carried out after it.
    sent: Option<[u64; 2]>,
    /// Flows deleted since.
    deleted: u64,
    /// How many samples have left some unexplained.
    doubts: u8,
}

/// So many samples must leave deletions unexplained. ovn-controller publishes its counter at most once a second, and only when
/// its main loop turns, as it does for a sample: the first may come too early, the second is answered before the counter is
/// published, the third is right.
const SAMPLES: u8 = 3;

/// A flow that ovn-controller has installed takes it a few hundred bytes; more than this, in KiB, none does on average.
const LARGEST_FLOW: u64 = 10;

/// How many flows are missing at least, if there are so few that ovn-controller's memory of them cannot be true.
fn missing(there: u64, installed_kib: u64) -> Option<u64> {
    (installed_kib / LARGEST_FLOW).checked_sub(there).filter(|missing| *missing > 0)
}

/// What a count of the flows shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// They may well be all there.
    Fine,
    /// They should be counted again.
    Doubtful,
    /// At least so many are missing.
    Missing(u64),
}

/// Looks for a bridge that was wiped while nobody watched. ovn-controller takes flows for installed as soon as it has sent
/// them, and ovs-vswitchd may need a while for them: only a bridge that stays empty was wiped.
#[derive(Debug, Default)]
pub(super) struct Census {
    doubts: u8,
}

impl Census {
    /// So many flows were there, after ovn-controller had told how much memory those take that it has installed.
    pub(super) fn counted(&mut self, there: u64, installed_kib: u64) -> Finding {
        let Some(missing) = missing(there, installed_kib) else { return Finding::Fine };
        self.doubts += 1;
        if self.doubts < SAMPLES { Finding::Doubtful } else { Finding::Missing(missing) }
    }
}

impl Balance {
    /// Flows were deleted.
    pub(super) fn deleted(&mut self, count: u64) {
        self.deleted = self.deleted.saturating_add(count);
    }

    /// Whether a sample should follow soon.
    pub(super) fn is_open(&self) -> bool {
        self.deleted > 0
    }

    /// What was deleted so far is not judged. What ovn-controller has sent counts all the same, for what is carried out
    /// later.
    pub(super) fn excuse(&mut self, sent: Option<u64>) {
        let known = self.sent.map(|[_, newer]| newer);
        let history = sent.map(|sent| [known.unwrap_or(sent), sent]);
        *self = Self { sent: history.or(self.sent), ..Self::default() };
    }

    /// ovn-controller has sent so many messages; returns how many flows somebody else deleted, at least.
    pub(super) fn sample(&mut self, sent: u64) -> Option<u64> {
        // Without an earlier number nobody knows what was sent while these flows were deleted.
        let Some([older, newer]) = self.sent else {
            self.excuse(Some(sent));
            return None;
        };
        // A counter that went back is another process's: what it did cannot be known.
        let own = sent.checked_sub(older).unwrap_or(u64::MAX);
        let foreign = self.deleted.saturating_sub(own);
        if foreign > 0 && self.doubts + 1 < SAMPLES {
            self.sent = Some([older, newer]);
            self.doubts += 1;
            return None;
        }
        *self = Self { sent: Some([newer, sent]), ..Self::default() };
        (foreign > 0).then_some(foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ovn_controller_deletes_itself_is_no_news() {
        let mut balance = Balance::default();
        assert_eq!(balance.sample(500), None);
        for round in 1..100 {
            // Thirty flows go, forty come; the last ones of a round are carried out in the next.
            balance.deleted(if round == 1 { 20 } else { 30 });
            assert_eq!(balance.sample(500 + round * 70), None);
        }
        // It was counted before it was carried out.
        assert_eq!(balance.sample(9000), None);
        balance.deleted(1500);
        assert_eq!(balance.sample(9000), None);
        assert_eq!(balance.doubts, 0);
    }

    #[test]
    fn more_than_it_could_have_deleted_was_somebody_else() {
        let mut balance = Balance::default();
        for _ in 0..3 {
            assert_eq!(balance.sample(500), None);
        }
        balance.deleted(1300);
        assert!(balance.is_open());
        assert_eq!((balance.sample(515), balance.sample(515)), (None, None));
        assert_eq!(balance.sample(515), Some(1285));
        assert_eq!(balance.sample(515), None);
        balance.deleted(1);
        assert_eq!((balance.sample(516), balance.sample(520)), (None, None));
    }

    #[test]
    fn a_counter_that_lags_behind_is_waited_for() {
        let mut balance = Balance::default();
        assert_eq!((balance.sample(500), balance.sample(500)), (None, None));
        balance.deleted(40);
        assert_eq!((balance.sample(500), balance.sample(500)), (None, None));
        assert_eq!(balance.sample(545), None);
        assert!(!balance.is_open());
    }

    #[test]
    fn deletions_of_the_start_are_weighed_against_what_was_sent_at_the_start() {
        // The last look of the start, and a moment later ovn-controller replaces flows.
        let mut balance = Balance::default();
        for sent in [400, 480] {
            balance.deleted(5);
            balance.excuse(Some(sent));
        }
        balance.deleted(30);
        assert_eq!([balance.sample(545), balance.sample(545), balance.sample(545)], [None; 3]);
        // It did not answer at the start: nothing can be said of what was deleted then, but of what is deleted later.
        let mut balance = Balance::default();
        balance.excuse(None);
        balance.deleted(30);
        assert_eq!([balance.sample(545), balance.sample(545), balance.sample(545)], [None; 3]);
        balance.deleted(40);
        assert_eq!((balance.sample(545), balance.sample(545), balance.sample(545)), (None, None, Some(40)));
    }

    #[test]
    fn flows_that_are_still_on_their_way_are_not_missing() {
        let mut census = Census::default();
        assert_eq!((census.counted(2, 155), census.counted(310, 162)), (Finding::Doubtful, Finding::Fine));
        let mut census = Census::default();
        assert_eq!((census.counted(2, 162), census.counted(2, 162)), (Finding::Doubtful, Finding::Doubtful));
        assert_eq!(census.counted(3, 162), Finding::Missing(13));
    }

    #[test]
    fn a_bridge_that_was_wiped_before_is_found() {
        // 478 flows took 162 KiB; of 1,300 flows 15 were left.
        assert_eq!((missing(478, 162), missing(0, 0), missing(0, 9)), (None, None, None));
        assert_eq!(missing(15, 440), Some(29));
    }
}
