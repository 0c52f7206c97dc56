//! Leftovers of another controller: when each row may be removed.
//!
//! Adoption (`adopt::leftovers`) finds which owners replace a row. An owner has replaced it when its turn was committed and
//! it is not parked: a parked owner keeps what it had, and that may be these rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Effect, Leading};
use crate::identity::{Owner, RowId};
use crate::store::Store;

/// Most owners to name in a report.
const NAMED: usize = 5;

/// Rows that still exist, with the owners that replace each; and the owners that have done so.
#[derive(Debug, Clone, Default)]
pub(super) struct Leftovers {
    rows: BTreeMap<RowId, BTreeSet<Owner>>,
    settled: BTreeSet<Owner>,
    /// Whether owners were committed since the last check.
    changed: bool,
    /// The last report, so that it is not repeated.
    reported: Option<(usize, String)>,
}

impl Leftovers {
    pub(super) fn new(rows: BTreeMap<RowId, BTreeSet<Owner>>) -> Self {
        Self { rows, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows that may be removed if these owners are committed in the same transaction.
    pub(super) fn free(&self, also: &BTreeSet<Owner>) -> BTreeSet<RowId> {
        let done = |owner: &Owner| self.settled.contains(owner) || also.contains(owner);
        self.rows.iter().filter(|(_, owners)| owners.iter().all(done)).map(|(id, _)| *id).collect()
    }

    /// These owners were committed, and these rows removed.
    fn committed(&mut self, done: BTreeSet<Owner>, gone: &BTreeSet<RowId>) {
        self.changed |= !done.is_empty() || !gone.is_empty();
        self.rows.retain(|id, _| !gone.contains(id));
        match self.rows.is_empty() {
            true => self.settled = BTreeSet::new(),
            false => self.settled.extend(done),
        }
    }

    /// The number of rows, and the first owners that they wait for; none if that was reported already.
    fn report(&mut self) -> Option<(usize, String)> {
        let report = Some(self.waits()).filter(|(rows, _)| *rows > 0);
        if report == self.reported {
            return None;
        }
        self.reported.clone_from(&report);
        report
    }

    fn waits(&self) -> (usize, String) {
        let open: BTreeSet<&Owner> =
            self.rows.values().flatten().filter(|owner| !self.settled.contains(owner)).collect();
        let mut names: Vec<String> = open.iter().take(NAMED).map(ToString::to_string).collect();
        if open.len() > NAMED {
            names.push(format!("{} more", open.len() - NAMED));
        }
        (self.rows.len(), names.join(", "))
    }
}

impl Leading {
    /// Records which owners have replaced rows of another controller; queues the removal of free rows, reports the others.
    pub(super) fn replaced(
        &mut self,
        done: BTreeSet<Owner>,
        gone: &BTreeSet<RowId>,
        effects: &mut Vec<Effect>,
        now: Duration,
    ) {
        if self.leftovers.is_empty() {
            return;
        }
        self.leftovers.committed(done, gone);
        if self.queue.len() > 0 || !std::mem::take(&mut self.leftovers.changed) {
            return;
        }
        if !self.leftovers.free(&BTreeSet::new()).is_empty() {
            self.queue.push(Owner::Adopted, now);
        } else if let Some((rows, waiting_for)) = self.leftovers.report() {
            effects.push(Effect::LeftoversKept { rows, waiting_for });
        }
    }

    /// Whether a pod waits for its node.
    pub(super) fn is_waiting(&self, owner: &Owner, store: &Store) -> bool {
        let Owner::Pod(key) = owner else { return false };
        let node = store.pod(key).and_then(|pod| pod.node.as_ref());
        node.and_then(|node| self.waiting.get(node)).is_some_and(|pods| pods.contains(key))
    }
}
