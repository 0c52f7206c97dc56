//! Since when the Nodes of the record have been absent, by the clock that does not jump.
//!
//! As with the distribution delay ([`crate::Seen`]), only what this process has seen itself counts, without a gap. One that takes
//! over, or could not read the Nodes for a while, starts from zero: a certificate that stays valid for some minutes more does
//! less harm than the revocation of one that is in use.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::chassis::judge::KnownNode;
use crate::chassis::record::Record;

/// A longer time between two looks is a gap.
const LONGEST_GAP: Duration = Duration::from_secs(120);

/// Remembers since when Nodes are absent, by their UIDs.
#[derive(Debug, Default)]
pub struct Absences {
    since: BTreeMap<String, Instant>,
    looked: Option<Instant>,
}

impl Absences {
    /// Forgets what was seen: the Nodes could not be read.
    pub fn interrupt(&mut self) {
        *self = Self::default();
    }

    /// Looks at the record and at the Nodes: `None` unless all of them are known now. Returns the UIDs of those that have been
    /// absent for the grace period. A Node with another UID is another one.
    pub fn look(
        &mut self,
        record: &Record,
        nodes: Option<&BTreeMap<String, KnownNode>>,
        grace: Duration,
        now: Instant,
    ) -> BTreeSet<String> {
        let has_gap = self.looked.is_some_and(|before| now.saturating_duration_since(before) > LONGEST_GAP);
        if nodes.is_none() || has_gap {
            self.interrupt();
        }
        let Some(nodes) = nodes else { return BTreeSet::new() };
        self.looked = Some(now);
        let existing: BTreeSet<&str> = nodes.values().map(|node| node.uid.as_str()).collect();
        let recorded = record.holders().map(|(_, claim)| claim.node_uid.as_str());
        let absent: BTreeSet<&str> = recorded.filter(|uid| !existing.contains(uid)).collect();
        self.since.retain(|uid, _| absent.contains(uid.as_str()));
        for uid in absent {
            self.since.entry(uid.to_owned()).or_insert(now);
        }
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= grace;
        self.since.iter().filter(|(_, since)| is_over(since)).map(|(uid, _)| uid.clone()).collect()
    }
}
