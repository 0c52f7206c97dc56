//! What was released and may still be in use somewhere: an address rests until every node has forgotten its old port.
//!
//! ```text
//!  release ─▶ Leaving ──commit without the port──▶ Gone ──nb_cfg raised to n──▶ Asked(n) ──all nodes at n──▶ free
//! ```
//!
//! What rests also stands in the database, under keys that northd does not look at, so that a restart in the middle
//! does not hand it out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netmodel::Prefix;

use crate::identity::{Name, Owner};

/// Something that can be given to one owner only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// A pod's address.
    Address(IpAddr),
    /// A node's subnet.
    Subnet(Prefix),
    /// A node's number.
    NodeId(u32),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Subnet(subnet) => subnet.fmt(f),
            Self::NodeId(id) => id.fmt(f),
        }
    }
}

impl FromStr for Thing {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let subnet = || text.parse().map(Self::Subnet).ok();
        let id = || text.parse().map(Self::NodeId).ok();
        text.parse().map(Self::Address).ok().or_else(subnet).or_else(id).ok_or(())
    }
}

/// How far a thing is on its way to be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its old port is still in the database.
    Leaving,
    /// It is out of the database; nobody was asked yet whether it is off the nodes.
    Gone,
    /// The nodes were asked with this number.
    Asked(i64),
}

/// A thing that rests.
#[derive(Debug, Clone)]
pub(super) struct Resting {
    /// Who had it, and may have it back at once.
    pub(super) owner: Name,
    /// The node that it was used on.
    pub(super) node: Name,
    stage: Stage,
}

/// Everything that rests.
#[derive(Debug, Clone, Default)]
pub struct Quarantine {
    things: BTreeMap<Thing, Resting>,
    /// What is out of the database though somebody still has it: his rows went with others', and will come again. It
    /// stands in the database too, and goes from there when all nodes have forgotten it.
    absent: BTreeMap<Thing, Resting>,
    /// What leaves with which owner's rows.
    leaving: BTreeMap<Owner, BTreeSet<Thing>>,
    /// What is gone from the database, and nobody was asked about yet.
    gone: BTreeSet<Thing>,
    /// Whose keys in the database can go.
    freed: BTreeSet<Thing>,
}

impl Quarantine {
    pub(super) fn get(&self, thing: Thing) -> Option<&Resting> {
        self.things.get(&thing)
    }

    /// Puts a thing to rest; it leaves the database with the rows of `with`.
    pub(super) fn rest(&mut self, thing: Thing, owner: Name, node: Name, with: &Owner) {
        self.freed.remove(&thing);
        self.gone.remove(&thing);
        self.absent.remove(&thing);
        self.things.insert(thing, Resting { owner, node, stage: Stage::Leaving });
        self.leaving.entry(with.clone()).or_default().insert(thing);
    }

    /// A thing is out of the database.
    pub(crate) fn lost(&mut self, thing: Thing, owner: &str, node: &str) {
        if !self.things.contains_key(&thing) {
            self.freed.remove(&thing);
            self.gone.insert(thing);
            self.absent.insert(thing, Resting { owner: owner.into(), node: node.into(), stage: Stage::Gone });
        }
    }

    /// A thing is in the database again.
    pub(crate) fn regained(&mut self, thing: Thing) {
        if self.absent.remove(&thing).is_some() {
            self.gone.remove(&thing);
        }
    }

    /// Restores a thing that the database says rests.
    pub(super) fn restore(&mut self, thing: Thing, owner: Name, node: Name) {
        self.things.insert(thing, Resting { owner, node, stage: Stage::Gone });
        self.gone.insert(thing);
    }

    /// Ends a thing's rest, because its owner came back. If its rows are out of the database, the database goes on listing
    /// the thing until they are back: the owner may be deleted before that, while nodes still have the old port.
    pub(super) fn take_back(&mut self, thing: Thing) {
        if let Some(resting) = self.things.remove(&thing) {
            if resting.stage == Stage::Leaving {
                self.freed.insert(thing);
                self.gone.remove(&thing);
            } else {
                self.absent.insert(thing, resting);
            }
            self.leaving.retain(|_, things| {
                things.remove(&thing);
                !things.is_empty()
            });
        }
    }

    /// Whether something leaves with an owner's rows.
    pub fn leaves_with(&self, owner: &Owner) -> bool {
        self.leaving.contains_key(owner)
    }

    /// An owner's rows were committed: what left with them is out of the database.
    pub fn committed(&mut self, owner: &Owner) {
        for thing in self.leaving.remove(owner).into_iter().flatten() {
            if let Some(resting) = self.things.get_mut(&thing) {
                resting.stage = Stage::Gone;
                self.gone.insert(thing);
            }
        }
    }

    /// Whether the nodes must be asked.
    pub fn must_ask(&self) -> bool {
        !self.gone.is_empty()
    }

    /// The nodes were asked with a number, after all that is gone was committed.
    pub fn asked(&mut self, number: i64) {
        for thing in std::mem::take(&mut self.gone) {
            if let Some(resting) = self.things.get_mut(&thing).or_else(|| self.absent.get_mut(&thing)) {
                resting.stage = Stage::Asked(number);
            }
        }
    }

    /// Ends the rest of all things that `forgotten` says every node has forgotten; returns them with their nodes.
    pub(super) fn wake(&mut self, forgotten: impl Fn(&str, i64) -> bool) -> Vec<(Thing, Name)> {
        let is_over =
            |resting: &Resting| matches!(resting.stage, Stage::Asked(number) if forgotten(&resting.node, number));
        let awake = |_: &Thing, resting: &mut Resting| is_over(resting);
        let free: Vec<(Thing, Name)> =
            self.things.extract_if(.., awake).map(|(thing, resting)| (thing, resting.node)).collect();
        self.freed.extend(free.iter().map(|(thing, _)| *thing));
        self.freed.extend(self.absent.extract_if(.., awake).map(|(thing, _)| thing));
        free
    }

    /// What rests no longer and still stands in the database.
    pub fn freed(&self) -> impl Iterator<Item = Thing> + '_ {
        self.freed.iter().copied()
    }

    /// Their keys are out of the database.
    pub fn forget_freed(&mut self, things: &[Thing]) {
        for thing in things {
            self.freed.remove(thing);
        }
    }

    /// The subnet of a family that rests after this owner had it.
    pub(super) fn subnet_of(&self, owner: &str, v6: bool) -> Option<Prefix> {
        self.things.iter().find_map(|(thing, resting)| match thing {
            Thing::Subnet(subnet) if subnet.is_ipv6() == v6 && &*resting.owner == owner => Some(*subnet),
            _ => None,
        })
    }

    /// An address within a subnet that rests after this owner had it.
    pub(super) fn address_of(&self, owner: &str, subnet: Prefix) -> Option<IpAddr> {
        let first = Thing::Address(subnet.network());
        let range = self.things.range(first..=Thing::Address(subnet.last()));
        range.into_iter().find(|(_, resting)| &*resting.owner == owner).and_then(|(thing, _)| match thing {
            Thing::Address(address) => Some(*address),
            _ => None,
        })
    }

    /// The addresses within a subnet that rest.
    pub(super) fn addresses_in(&self, subnet: Prefix) -> impl Iterator<Item = IpAddr> + '_ {
        self.things.keys().filter_map(move |thing| match thing {
            Thing::Address(address) if subnet.contains(*address) => Some(*address),
            _ => None,
        })
    }

    /// How many things rest.
    pub fn len(&self) -> usize {
        self.things.len()
    }

    /// Whether nothing rests.
    pub fn is_empty(&self) -> bool {
        self.things.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_free_only_after_commit_question_and_answer() {
        let (pod, thing) = (Owner::Node("n1".into()), Thing::Address("10.0.0.3".parse().unwrap()));
        let mut quarantine = Quarantine::default();
        quarantine.rest(thing, "uid".into(), "n1".into(), &pod);
        assert!(quarantine.leaves_with(&pod));
        quarantine.asked(1);
        assert!(quarantine.wake(|_, _| true).is_empty(), "its port is still in the database");
        quarantine.committed(&pod);
        assert!(quarantine.must_ask());
        quarantine.asked(2);
        assert!(!quarantine.must_ask());
        assert!(quarantine.wake(|_, number| number < 2).is_empty());
        assert_eq!(quarantine.wake(|node, number| node == "n1" && number <= 2).len(), 1);
        assert_eq!(quarantine.freed().collect::<Vec<_>>(), [thing]);
        quarantine.forget_freed(&[thing]);
        assert!(quarantine.is_empty() && quarantine.freed().next().is_none());
    }

    #[test]
    fn texts_lead_back() {
        for thing in [
            Thing::Address("fd01::3".parse().unwrap()),
            Thing::Subnet("10.128.0.0/23".parse().unwrap()),
            Thing::NodeId(7),
        ] {
            assert_eq!(thing.to_string().parse(), Ok(thing));
        }
        assert!("seven".parse::<Thing>().is_err());
    }
}
