//! Distinguishes flows of br-int that another client deleted from those that ovn-controller deleted.
//!
//! ovn-controller deletes each flow with a message of its own, so in any period the deleted flows are at most as many as the
//! messages that it sends. Any excess was deleted by another client (`ovs-ofctl del-flows br-int` is one message for all). The
//! converse proves nothing: ovn-controller also sends other messages, so a few deletions while it is busy can go unnoticed.

/// Compares deletions with the messages that ovn-controller sent.
#[derive(Debug, Default)]
pub(super) struct DeletionBalance {
    /// ovn-controller's message counter two samples ago, and one ago. The older one counts: a message that was sent just before
    /// a sample may be executed after it.
    sent: Option<[u64; 2]>,
    /// Flows deleted since then.
    deleted: u64,
    /// Consecutive samples with unexplained deletions.
    suspicions: u8,
}

/// Consecutive samples that must leave deletions unexplained. ovn-controller updates its counter at most once a second, and only
/// when its main loop runs, as a sample makes it do: the first may be too early, the second is read before the update, the third
/// is right.
const SAMPLES: u8 = 3;

/// Upper bound of ovn-controller's average memory for a flow, in KiB; the real value is a few hundred bytes.
const MAX_FLOW_KIB: u64 = 10;

/// Lower bound of missing flows, if there are fewer than ovn-controller's memory of them allows.
fn missing(there: u64, installed_kib: u64) -> Option<u64> {
    (installed_kib / MAX_FLOW_KIB).checked_sub(there).filter(|missing| *missing > 0)
}

/// What a count of the flows proves.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CountResult {
    /// No flow is provably missing.
    Fine,
    /// Flows seem to be missing: count again.
    Suspicious,
    /// At least this many are missing.
    Missing(u64),
}

/// Finds deletions from before the connection. ovn-controller counts flows as installed once it has sent them, and ovs-vswitchd may
/// need time for them: only a bridge that stays empty was wiped.
#[derive(Debug, Default)]
pub(super) struct FlowCount {
    suspicions: u8,
}

impl FlowCount {
    /// `there`: flows of the bridge, counted after ovn-controller reported the memory of its installed flows.
    pub(super) fn counted(&mut self, there: u64, installed_kib: u64) -> CountResult {
        let Some(missing) = missing(there, installed_kib) else { return CountResult::Fine };
        self.suspicions += 1;
        if self.suspicions < SAMPLES { CountResult::Suspicious } else { CountResult::Missing(missing) }
    }
}

impl DeletionBalance {
    /// Adds flows that were deleted on request.
    pub(super) fn deleted(&mut self, count: u64) {
        self.deleted = self.deleted.saturating_add(count);
    }

    /// True if a sample should follow soon.
    pub(super) fn is_open(&self) -> bool {
        self.deleted > 0
    }

    /// Ignores the deletions so far. The message counter is kept, for messages that are executed later.
    pub(super) fn discard(&mut self, sent: Option<u64>) {
        let known = self.sent.map(|[_, newer]| newer);
        let history = sent.map(|sent| [known.unwrap_or(sent), sent]);
        *self = Self { sent: history.or(self.sent), ..Self::default() };
    }

    /// Takes ovn-controller's message counter; returns a lower bound of the flows that another client deleted.
    pub(super) fn sample(&mut self, sent: u64) -> Option<u64> {
        // Without an earlier counter the messages in this period are unknown.
        let Some([older, newer]) = self.sent else {
            self.discard(Some(sent));
            return None;
        };
        // A smaller counter is that of another process, whose messages are unknown.
        let own = sent.checked_sub(older).unwrap_or(u64::MAX);
        let foreign = self.deleted.saturating_sub(own);
        if foreign > 0 && self.suspicions + 1 < SAMPLES {
            self.sent = Some([older, newer]);
            self.suspicions += 1;
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
    fn deletions_by_ovn_controller_are_not_reported() {
        let mut balance = DeletionBalance::default();
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
        assert_eq!(balance.suspicions, 0);
    }

    #[test]
    fn deletions_in_excess_of_its_messages_are_another_clients() {
        let mut balance = DeletionBalance::default();
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
    fn a_late_counter_is_waited_for() {
        let mut balance = DeletionBalance::default();
        assert_eq!((balance.sample(500), balance.sample(500)), (None, None));
        balance.deleted(40);
        assert_eq!((balance.sample(500), balance.sample(500)), (None, None));
        assert_eq!(balance.sample(545), None);
        assert!(!balance.is_open());
    }

    #[test]
    fn deletions_during_the_start_are_compared_with_messages_of_the_start() {
        // The last look of the start, and a moment later ovn-controller replaces flows.
        let mut balance = DeletionBalance::default();
        for sent in [400, 480] {
            balance.deleted(5);
            balance.discard(Some(sent));
        }
        balance.deleted(30);
        assert_eq!([balance.sample(545), balance.sample(545), balance.sample(545)], [None; 3]);
        // It did not answer at the start: nothing can be said of what was deleted then, but of what is deleted later.
        let mut balance = DeletionBalance::default();
        balance.discard(None);
        balance.deleted(30);
        assert_eq!([balance.sample(545), balance.sample(545), balance.sample(545)], [None; 3]);
        balance.deleted(40);
        assert_eq!((balance.sample(545), balance.sample(545), balance.sample(545)), (None, None, Some(40)));
    }

    #[test]
    fn flows_that_are_being_installed_are_not_missing() {
        let mut flow_count = FlowCount::default();
        assert_eq!(
            (flow_count.counted(2, 155), flow_count.counted(310, 162)),
            (CountResult::Suspicious, CountResult::Fine)
        );
        let mut flow_count = FlowCount::default();
        assert_eq!(
            (flow_count.counted(2, 162), flow_count.counted(2, 162)),
            (CountResult::Suspicious, CountResult::Suspicious)
        );
        assert_eq!(flow_count.counted(3, 162), CountResult::Missing(13));
    }

    #[test]
    fn a_bridge_that_was_wiped_before_the_connection_is_detected() {
        // 478 flows took 162 KiB; of 1,300 flows 15 were left.
        assert_eq!((missing(478, 162), missing(0, 0), missing(0, 9)), (None, None, None));
        assert_eq!(missing(15, 440), Some(29));
    }
}
