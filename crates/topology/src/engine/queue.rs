//! The queue of owners: dependencies first, then by waiting time; the resync comes last.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::identity::Owner;

/// Owners whose rows may have to change, each once.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    order: BTreeMap<(u8, u64), Owner>,
    /// Since when each queued owner waits.
    places: BTreeMap<Owner, Duration>,
    next: u64,
    /// Owners without a known change, to be reconciled behind all others; the next one is last.
    resync: Vec<Owner>,
    resync_since: Duration,
    /// Owners that were postponed once.
    early: BTreeSet<Owner>,
}

/// An owner whose turn it is, and since when it waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) owner: Owner,
    pub(super) since: Duration,
}

impl Queue {
    /// Queues an owner; one that is queued already keeps its position.
    pub(super) fn push(&mut self, owner: Owner, since: Duration) {
        if self.places.contains_key(&owner) {
            return;
        }
        // Rows are created before rows that refer to them.
        let class = match &owner {
            Owner::Cluster => 0,
            Owner::Node(_) => 1,
            Owner::Namespace(_) => 2,
            Owner::Selector(_) => 3,
            Owner::Policy(_) | Owner::BaselinePolicy(_) => 4,
            Owner::AdminPolicy(_) => 5,
            Owner::Pod(_) => 6,
            Owner::Service(_) => 7,
            Owner::Adopted => 8,
        };
        let key = (class, self.next);
        self.next += 1;
        self.order.insert(key, owner.clone());
        self.places.insert(owner, since);
    }

    /// Whether a node, a pod, a policy or what belongs to the cluster is queued: an owner that traffic depends on.
    pub(super) fn has_traffic(&self) -> bool {
        self.places.keys().any(|owner| {
            matches!(
                owner,
                Owner::Cluster | Owner::Node(_) | Owner::Policy(_) | Owner::BaselinePolicy(_) | Owner::Pod(_)
            )
        })
    }

    /// Reconciles these owners when nothing else is queued. One that is queued meanwhile is reconciled twice, which is harmless.
    pub(super) fn resync(&mut self, mut owners: Vec<Owner>, since: Duration) {
        owners.reverse();
        self.resync = owners;
        self.resync_since = since;
    }

    /// Moves an owner that needs another one's rows to the end of the resync. False if the resync is over or it was moved
    /// already.
    pub(super) fn postpone(&mut self, owner: &Owner) -> bool {
        let waits = !self.resync.is_empty() && self.early.insert(owner.clone());
        if waits {
            self.resync.insert(0, owner.clone());
        }
        waits
    }

    /// Takes the next owners. With `together`, all queued AdminNetworkPolicies come in one batch, also beyond `most`: their
    /// relative order must never be wrong.
    pub(super) fn take(&mut self, most: usize, together: bool) -> Vec<Turn> {
        let mut turns: Vec<Turn> = Vec::with_capacity(most.min(self.order.len()));
        let is_admin = |owner: &Owner| matches!(owner, Owner::AdminPolicy(_));
        while let Some(next) = self.order.first_entry()
            && (turns.len() < most
                || together && is_admin(next.get()) && turns.last().is_some_and(|turn| is_admin(&turn.owner)))
        {
            let owner = next.remove();
            let since = self.places.remove(&owner).unwrap_or_default();
            turns.push(Turn { owner, since });
        }
        let rest = self.resync.len() - most.saturating_sub(turns.len()).min(self.resync.len());
        let since = self.resync_since;
        // Not twice in one batch.
        let queued: BTreeSet<Owner> = match rest < self.resync.len() {
            true => turns.iter().map(|turn| turn.owner.clone()).collect(),
            false => BTreeSet::new(),
        };
        let resynced = self.resync.drain(rest..).rev().filter(|owner| !queued.contains(owner));
        turns.extend(resynced.map(|owner| Turn { owner, since }));
        if self.resync.is_empty() {
            self.resync.shrink_to_fit();
            self.early.clear();
        }
        turns
    }

    pub(super) fn len(&self) -> usize {
        self.order.len() + self.resync.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_changes_before_the_resync() {
        let node = |name: &str| Owner::Node(name.into());
        let pod = |name: &str| Owner::Pod(std::sync::Arc::new(objects::PodKey::new("ns", name)));
        let mut queue = Queue::default();
        queue.resync(vec![pod("old"), pod("older"), pod("z")], Duration::ZERO);
        queue.push(pod("z"), Duration::ZERO);
        queue.push(pod("a"), Duration::ZERO);
        queue.push(pod("z"), Duration::ZERO);
        queue.push(node("n1"), Duration::ZERO);
        let mut take = |most| queue.take(most, true).into_iter().map(|turn| turn.owner).collect::<Vec<Owner>>();
        assert_eq!(take(4), [node("n1"), pod("z"), pod("a"), pod("old")]);
        assert_eq!(take(10), [pod("older"), pod("z")]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn admin_policies_come_together() {
        let admin = |name: &str| Owner::AdminPolicy(name.into());
        let pod = Owner::Pod(std::sync::Arc::new(objects::PodKey::new("ns", "p")));
        let taken = |most, together| {
            let mut queue = Queue::default();
            for owner in [admin("a"), admin("b"), Owner::Cluster, pod.clone(), admin("c")] {
                queue.push(owner, Duration::ZERO);
            }
            queue.take(most, together).into_iter().map(|turn| turn.owner.name()).collect::<Vec<String>>()
        };
        assert_eq!(taken(1, true), ["cluster"]);
        assert_eq!(taken(2, true), ["cluster", "a", "b", "c"]);
        assert_eq!(taken(2, false), ["cluster", "a"]);
    }
}
