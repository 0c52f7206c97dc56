//! Quarantine of released items, until no node's flows use them.
//!
//! ```text
//!  release ─▶ InDatabase ──commit without its rows──▶ Removed ──nb_cfg raised to n──▶ Acknowledging(n) ──all nodes at n──▶ free
//! ```
//!
//! Quarantined items are also listed in the database, in a column that northd does not read, so that a restart does not
//! allocate them early.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netmodel::{Family, Prefix};
use objects::Name;

use crate::identity::Owner;

/// An item that is allocated to one owner at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allocatable {
    /// An address of a pod, whatever its node.
    Address(IpAddr),
    /// A node's subnet, with all its addresses.
    Subnet(Prefix),
    /// ID of a node; its join addresses derive from it.
    NodeId(u32),
}

impl fmt::Display for Allocatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Subnet(subnet) => subnet.fmt(f),
            Self::NodeId(id) => id.fmt(f),
        }
    }
}

impl FromStr for Allocatable {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let subnet = || text.parse().map(Self::Subnet).ok();
        let id = || text.parse().map(Self::NodeId).ok();
        text.parse().map(Self::Address).ok().or_else(subnet).or_else(id).ok_or(())
    }
}

/// Progress of a quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The former owner's rows are still in the database.
    InDatabase,
    /// They are removed; `nb_cfg` was not raised since.
    Removed,
    /// Waits until all nodes have acknowledged this `nb_cfg`.
    Acknowledging(i64),
}

#[derive(Debug, Clone)]
pub(super) struct Quarantined {
    /// UID of the pod, or name of the node, that had it and may reclaim it at once.
    pub(super) owner: Name,
    /// Node whose switch had it; its chassis must have dropped the flows.
    pub(super) node: Name,
    stage: Stage,
}

/// Items that cannot be allocated yet, because flows of a node may still use them.
#[derive(Debug, Clone, Default)]
pub struct Quarantine {
    items: BTreeMap<Allocatable, Quarantined>,
    /// Allocated items whose rows were removed with others' and will be written again. The database lists them too, until all
    /// nodes have acknowledged the removal.
    absent: BTreeMap<Allocatable, Quarantined>,
    /// Items that are removed from the database with an owner's rows.
    leaving: BTreeMap<Owner, BTreeSet<Allocatable>>,
    /// Items in stage `Removed`.
    removed: BTreeSet<Allocatable>,
    /// Free items that the database still lists.
    freed: BTreeSet<Allocatable>,
}

impl Quarantine {
    pub(super) fn get(&self, item: Allocatable) -> Option<&Quarantined> {
        self.items.get(&item)
    }

    /// Quarantines an item; it is removed from the database with the rows of `with`.
    pub(super) fn add(&mut self, item: Allocatable, owner: Name, node: Name, with: &Owner) {
        self.freed.remove(&item);
        self.removed.remove(&item);
        self.absent.remove(&item);
        self.items.insert(item, Quarantined { owner, node, stage: Stage::InDatabase });
        self.leaving.entry(with.clone()).or_default().insert(item);
    }

    /// The rows of an item were removed from the database.
    pub(crate) fn lost(&mut self, item: Allocatable, owner: &str, node: &str) {
        if !self.items.contains_key(&item) {
            self.freed.remove(&item);
            self.removed.insert(item);
            self.absent.insert(item, Quarantined { owner: owner.into(), node: node.into(), stage: Stage::Removed });
        }
    }

    /// The rows of an item are in the database again.
    pub(crate) fn regained(&mut self, item: Allocatable) {
        if self.absent.remove(&item).is_some() {
            self.removed.remove(&item);
        }
    }

    /// Restores an item that the database lists.
    pub(super) fn restore(&mut self, item: Allocatable, owner: Name, node: Name) {
        self.items.insert(item, Quarantined { owner, node, stage: Stage::Removed });
        self.removed.insert(item);
    }

    /// Ends an item's quarantine because its former owner is back. If its rows were removed, the database goes on listing it
    /// until they are back: the owner may be deleted before that, while nodes still have the old flows.
    pub(super) fn reclaim(&mut self, item: Allocatable) {
        if let Some(entry) = self.items.remove(&item) {
            if entry.stage == Stage::InDatabase {
                self.freed.insert(item);
                self.removed.remove(&item);
            } else {
                self.absent.insert(item, entry);
            }
            self.leaving.retain(|_, items| {
                items.remove(&item);
                !items.is_empty()
            });
        }
    }

    /// Whether an item is removed with an owner's rows.
    pub fn leaves_with(&self, owner: &Owner) -> bool {
        self.leaving.contains_key(owner)
    }

    /// An owner's rows were committed: the items that were removed with them wait for the next raise of `nb_cfg`.
    pub fn committed(&mut self, owner: &Owner) {
        for item in self.leaving.remove(owner).into_iter().flatten() {
            if let Some(entry) = self.items.get_mut(&item) {
                entry.stage = Stage::Removed;
                self.removed.insert(item);
            }
        }
    }

    /// Whether `nb_cfg` must be raised.
    pub fn must_raise(&self) -> bool {
        !self.removed.is_empty()
    }

    /// `nb_cfg` was raised to this value, after the removals were committed.
    pub fn raised(&mut self, number: i64) {
        for item in std::mem::take(&mut self.removed) {
            if let Some(entry) = self.items.get_mut(&item).or_else(|| self.absent.get_mut(&item)) {
                entry.stage = Stage::Acknowledging(number);
            }
        }
    }

    /// Ends the quarantine of items whose removal is `acknowledged` by all nodes; returns them with their nodes.
    pub(super) fn release(&mut self, acknowledged: impl Fn(&str, i64) -> bool) -> Vec<(Allocatable, Name)> {
        let is_over = |entry: &Quarantined| matches!(entry.stage, Stage::Acknowledging(number) if acknowledged(&entry.node, number));
        let released = |_: &Allocatable, entry: &mut Quarantined| is_over(entry);
        let free: Vec<(Allocatable, Name)> =
            self.items.extract_if(.., released).map(|(item, entry)| (item, entry.node)).collect();
        self.freed.extend(free.iter().map(|(item, _)| *item));
        self.freed.extend(self.absent.extract_if(.., released).map(|(item, _)| item));
        free
    }

    /// Free items that the database still lists.
    pub fn freed(&self) -> impl Iterator<Item = Allocatable> + '_ {
        self.freed.iter().copied()
    }

    /// The database no longer lists them.
    pub fn forget_freed(&mut self, items: &[Allocatable]) {
        for item in items {
            self.freed.remove(item);
        }
    }

    /// The quarantined subnet of a family that this owner had.
    pub(super) fn subnet_of(&self, owner: &str, family: Family) -> Option<Prefix> {
        self.items.iter().find_map(|(item, entry)| match item {
            Allocatable::Subnet(subnet) if subnet.family() == family && &*entry.owner == owner => Some(*subnet),
            _ => None,
        })
    }

    /// The quarantined address within a subnet that this owner had.
    pub(super) fn address_of(&self, owner: &str, subnet: Prefix) -> Option<IpAddr> {
        let first = Allocatable::Address(subnet.network());
        let range = self.items.range(first..=Allocatable::Address(subnet.last()));
        range.into_iter().find(|(_, entry)| &*entry.owner == owner).and_then(|(item, _)| match item {
            Allocatable::Address(address) => Some(*address),
            _ => None,
        })
    }

    /// The quarantined addresses within a subnet.
    pub(super) fn addresses_in(&self, subnet: Prefix) -> impl Iterator<Item = IpAddr> + '_ {
        self.items.keys().filter_map(move |item| match item {
            Allocatable::Address(address) if subnet.contains(*address) => Some(*address),
            _ => None,
        })
    }

    /// Number of quarantined items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is quarantined.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_free_only_after_commit_and_acknowledgement() {
        let (pod, item) = (Owner::Node("n1".into()), Allocatable::Address("10.0.0.3".parse().unwrap()));
        let mut quarantine = Quarantine::default();
        quarantine.add(item, "uid".into(), "n1".into(), &pod);
        assert!(quarantine.leaves_with(&pod));
        quarantine.raised(1);
        assert!(quarantine.release(|_, _| true).is_empty(), "its port is still in the database");
        quarantine.committed(&pod);
        assert!(quarantine.must_raise());
        quarantine.raised(2);
        assert!(!quarantine.must_raise());
        assert!(quarantine.release(|_, number| number < 2).is_empty());
        assert_eq!(quarantine.release(|node, number| node == "n1" && number <= 2).len(), 1);
        assert_eq!(quarantine.freed().collect::<Vec<_>>(), [item]);
        quarantine.forget_freed(&[item]);
        assert!(quarantine.is_empty() && quarantine.freed().next().is_none());
    }

    #[test]
    fn items_are_parsed_from_their_text() {
        for item in [
            Allocatable::Address("fd01::3".parse().unwrap()),
            Allocatable::Subnet("10.128.0.0/23".parse().unwrap()),
            Allocatable::NodeId(7),
        ] {
            assert_eq!(item.to_string().parse(), Ok(item));
        }
        assert!("seven".parse::<Allocatable>().is_err());
    }
}
