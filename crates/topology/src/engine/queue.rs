//! Whose turn it is: what must be made first comes first, and among equals who waited longest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::identity::Owner;

/// Owners whose network may have to change, each once.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    order: BTreeMap<(u8, u64), Owner>,
    /// Since when each of them waits.
    places: BTreeMap<Owner, Duration>,
    next: u64,
    /// Those of whom nobody knows a change, and who are only to be looked at, behind all others: the last one first.
    review: Vec<Owner>,
    reviewed_since: Duration,
    /// Those who have come too early once.
    early: BTreeSet<Owner>,
}

/// An owner's turn, and since when it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) owner: Owner,
    pub(super) since: Duration,
}

impl Queue {
    /// Queues an owner; one that waits already keeps its place.
    pub(super) fn push(&mut self, owner: Owner, since: Duration) {
        if self.places.contains_key(&owner) {
            return;
        }
        // Rows that others refer to are made before those others.
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

    /// These are looked at when nobody else has a turn. Whoever is queued meanwhile is looked at twice, which does no harm.
    pub(super) fn review(&mut self, mut owners: Vec<Owner>, since: Duration) {
        owners.reverse();
        self.review = owners;
        self.reviewed_since = since;
    }

    /// An owner came before one that it needs and that is still to be reviewed: it is reviewed behind all. False if there
    /// is nobody left to wait for.
    pub(super) fn postpone(&mut self, owner: &Owner) -> bool {
        let waits = !self.review.is_empty() && self.early.insert(owner.clone());
        if waits {
            self.review.insert(0, owner.clone());
        }
        waits
    }

    /// Takes the next ones. AdminNetworkPolicies come together, unless they shall not: which of them is asked first must not
    /// be wrong for a moment.
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
        let rest = self.review.len() - most.saturating_sub(turns.len()).min(self.review.len());
        let since = self.reviewed_since;
        // One that has just been in the order would be in the batch twice.
        let queued: BTreeSet<Owner> = match rest < self.review.len() {
            true => turns.iter().map(|turn| turn.owner.clone()).collect(),
            false => BTreeSet::new(),
        };
        let reviewed = self.review.drain(rest..).rev().filter(|owner| !queued.contains(owner));
        turns.extend(reviewed.map(|owner| Turn { owner, since }));
        if self.review.is_empty() {
            self.review.shrink_to_fit();
            self.early.clear();
        }
        turns
    }

    pub(super) fn len(&self) -> usize {
        self.order.len() + self.review.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first_and_changes_before_reviews() {
        let node = |name: &str| Owner::Node(name.into());
        let pod = |name: &str| Owner::Pod(std::sync::Arc::new(crate::identity::PodKey::new("ns", name)));
        let mut queue = Queue::default();
        queue.review(vec![pod("old"), pod("older"), pod("z")], Duration::ZERO);
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
        let pod = Owner::Pod(std::sync::Arc::new(crate::identity::PodKey::new("ns", "p")));
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
