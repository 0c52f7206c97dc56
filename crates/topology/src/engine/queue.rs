//! Whose turn it is: what must be made first comes first, and among equals who waited longest.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::identity::Owner;

/// Owners whose network may have to change, each once.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    order: BTreeMap<(u8, u64), Owner>,
    places: BTreeMap<Owner, Place>,
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    key: (u8, u64),
    since: Duration,
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
        self.insert(owner, since, false);
    }

    /// Queues an owner behind all whose objects changed: nobody knows of a change, it is only to be looked at.
    pub(super) fn push_for_review(&mut self, owner: Owner, since: Duration) {
        self.insert(owner, since, true);
    }

    fn insert(&mut self, owner: Owner, since: Duration, review: bool) {
        // Rows that others refer to are made before those others, also in a review.
        let class = match &owner {
            Owner::Cluster => 0,
            Owner::Node(_) => 1,
            Owner::Namespace(_) => 2,
            Owner::Pod(_) => 3 + u8::from(review),
            Owner::Adopted => 5,
        };
        if let Some(place) = self.places.get(&owner) {
            if place.key.0 <= class {
                return;
            }
            self.order.remove(&place.key);
        }
        let key = (class, self.next);
        self.next += 1;
        self.order.insert(key, owner.clone());
        self.places.insert(owner, Place { key, since });
    }

    /// Takes the next ones.
    pub(super) fn take(&mut self, most: usize) -> Vec<Turn> {
        let mut turns = Vec::with_capacity(most.min(self.order.len()));
        while turns.len() < most
            && let Some((_, owner)) = self.order.pop_first()
        {
            let since = self.places.remove(&owner).map_or(Duration::ZERO, |place| place.since);
            turns.push(Turn { owner, since });
        }
        turns
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
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
        queue.push_for_review(pod("old"), Duration::ZERO);
        queue.push_for_review(pod("z"), Duration::ZERO);
        queue.push(pod("z"), Duration::ZERO);
        queue.push(pod("a"), Duration::ZERO);
        queue.push(pod("z"), Duration::ZERO);
        queue.push(node("n1"), Duration::ZERO);
        let order: Vec<Owner> = queue.take(10).into_iter().map(|turn| turn.owner).collect();
        assert_eq!(order, [node("n1"), pod("z"), pod("a"), pod("old")]);
        assert_eq!(queue.len(), 0);
    }
}
