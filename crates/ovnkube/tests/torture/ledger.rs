//! What the writer knows: which batches of writes were acknowledged, and how long writes had to wait. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ovsdb::uuid::Uuid;

/// Ports of one batch. A transaction has one batch, or several after an interruption.
pub(crate) const PORTS: u64 = 10;
/// Batches on one switch.
const BATCHES_OF_SWITCH: u64 = 100;
/// After this many batches all ports of a batch but the first are deleted, so that the database stays small.
pub(crate) const KEPT: u64 = 400;

/// Name and identity of a row follow from its number, so that a row written twice is one row.
pub(crate) fn uuid(table: u8, number: u64, index: u64) -> Uuid {
    let mut bytes = [0; 16];
    bytes[0] = 0x70 + table;
    bytes[1..8].copy_from_slice(&index.to_be_bytes()[1..]);
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Uuid::from_bytes(bytes)
}

/// One batch of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch(pub(crate) u64);

impl Batch {
    /// The number of its switch, and whether the batch creates it.
    pub(crate) fn switch(self) -> (u64, bool) {
        (self.0 / BATCHES_OF_SWITCH, self.0.is_multiple_of(BATCHES_OF_SWITCH))
    }

    /// Names and identities of its ports.
    pub(crate) fn ports(self) -> Vec<(String, Uuid)> {
        (0..PORTS).map(|index| (format!("port-{}-{index}", self.0), uuid(2, self.0, index))).collect()
    }

    /// The batch of which this one deletes all ports but the first.
    pub(crate) fn deletes(self) -> Option<Self> {
        self.0.checked_sub(KEPT).map(Self)
    }
}

/// Bookkeeping of the writer. Transactions are written one after the other, each until its fate is known.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Number of acknowledged batches; these are 0 to this.
    acknowledged: u64,
    transactions: u64,
    /// Switches written through followers, and acknowledged.
    followers: BTreeSet<String>,
    /// Batches that had to be retried.
    pub(crate) resent: u64,
    /// Batches whose reply was lost at first.
    pub(crate) in_doubt: u64,
    last: Option<Duration>,
    fault: Option<&'static str>,
    gaps: BTreeMap<&'static str, Duration>,
}

impl Ledger {
    /// The batch that comes next.
    pub(crate) fn next(&self) -> Batch {
        Batch(self.acknowledged)
    }

    pub(crate) fn batches(&self) -> u64 {
        self.acknowledged
    }

    /// The database acknowledged the next batches at this time since the start.
    pub(crate) fn acknowledge(&mut self, batches: u64, now: Duration) {
        self.acknowledged += batches;
        self.transactions += 1;
        if let (Some(last), Some(fault)) = (self.last, self.fault) {
            let longest = self.gaps.entry(fault).or_default();
            *longest = (*longest).max(now.saturating_sub(last));
        }
        self.last = Some(now);
    }

    /// Number of acknowledged transactions.
    pub(crate) fn transactions(&self) -> u64 {
        self.transactions
    }

    /// The database acknowledged a write through a follower.
    pub(crate) fn acknowledge_follower(&mut self, name: String) {
        self.followers.insert(name);
    }

    /// Gaps from here on are due to this kind of fault.
    pub(crate) fn begin(&mut self, fault: &'static str) {
        self.fault = Some(fault);
    }

    /// The longest time between two acknowledgements, by the kind of fault.
    pub(crate) fn gaps(&self) -> &BTreeMap<&'static str, Duration> {
        &self.gaps
    }

    /// Names of all rows that must be there now: ports and switches.
    pub(crate) fn expected(&self) -> BTreeSet<String> {
        let mut names = self.followers.clone();
        for batch in (0..self.acknowledged).map(Batch) {
            if let (number, true) = batch.switch() {
                names.insert(format!("switch-{number}"));
            }
            let trimmed = batch.0 + KEPT < self.acknowledged;
            let left = if trimmed { 1 } else { usize::MAX };
            names.extend(batch.ports().into_iter().take(left).map(|(name, _)| name));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_rows_are_those_of_acknowledged_batches_less_deleted_ones() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.expected().len(), 0);
        ledger.acknowledge(1, Duration::ZERO);
        assert_eq!(ledger.expected().len(), 11, "a switch and its ports");
        for _ in 0..KEPT {
            ledger.acknowledge(1, Duration::ZERO);
        }
        // Batch KEPT deleted nine ports of batch 0.
        let expected = ledger.expected();
        assert!(expected.contains("port-0-0") && !expected.contains("port-0-1") && expected.contains("port-1-1"));
        assert_eq!(expected.iter().filter(|name| name.starts_with("port")).count() as u64, KEPT * PORTS + 1);
        assert_eq!(Batch(KEPT).deletes(), Some(Batch(0)));
        ledger.acknowledge_follower("follower-1".into());
        assert!(ledger.expected().contains("follower-1"));
    }

    #[test]
    fn identities_are_different_for_different_rows_and_equal_for_the_same() {
        let mut all = BTreeSet::new();
        for number in 0..300 {
            assert!(all.insert(uuid(1, number, 0)));
            for (_, port) in Batch(number).ports() {
                assert!(all.insert(port));
            }
        }
        assert_eq!(Batch(5).ports(), Batch(5).ports());
    }

    #[test]
    fn the_longest_gap_is_attributed_to_the_current_fault() {
        let mut ledger = Ledger::default();
        let at = Duration::from_millis;
        ledger.acknowledge(1, at(100));
        ledger.begin("one");
        ledger.acknowledge(1, at(2100));
        ledger.acknowledge(1, at(2200));
        ledger.begin("two");
        ledger.acknowledge(1, at(2250));
        assert_eq!(ledger.gaps(), &BTreeMap::from([("one", at(2000)), ("two", at(50))]));
    }
}
