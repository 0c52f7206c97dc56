//! The clauses of policies that may match an address. A policy may have thousands of blocks, and a question about a network
//! evaluates an address in each of them: so blocks are indexed by prefix.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use netmodel::{Family, Prefix};
use topology::rules::PeerMatch;

/// The clauses of a tier for a pod and direction, in evaluation order.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The policies that apply to the pod, by index in the tier.
    pub(super) policies: Vec<usize>,
    /// Indexes of policy and clause.
    clauses: Vec<(usize, usize)>,
    /// Clauses that the index of blocks cannot exclude.
    unindexed: Vec<usize>,
    blocks: Blocks,
}

/// A clause that may match an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) policy: usize,
    pub(super) clause: usize,
    /// The first of its blocks with the address.
    pub(super) block: Option<usize>,
}

impl Rules {
    /// Adds the next clause.
    pub(super) fn add(&mut self, policy: usize, clause: usize, others: &PeerMatch) {
        let index = self.clauses.len();
        self.clauses.push((policy, clause));
        match others {
            PeerMatch::Any => self.unindexed.push(index),
            PeerMatch::AnyOf { sets, blocks } => {
                if !sets.is_empty() {
                    self.unindexed.push(index);
                }
                self.blocks.add(index, blocks);
            }
            PeerMatch::SetInBlocks { blocks, .. } => {
                self.unindexed.push(index);
                self.blocks.add(index, blocks);
            }
        }
    }

    /// All clauses that may match an address, in order.
    pub(super) fn candidates(&self, address: IpAddr) -> impl Iterator<Item = Candidate> {
        let hits = self.blocks.at(address);
        let mut indexes: Vec<usize> = self.unindexed.iter().chain(hits.keys()).copied().collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes.into_iter().map(move |index| {
            let (policy, clause) = self.clauses[index];
            Candidate { policy, clause, block: hits.get(&index).copied() }
        })
    }
}

/// The blocks of many clauses, by prefix.
#[derive(Debug, Default)]
struct Blocks {
    by_prefix: HashMap<Prefix, Vec<Hit>>,
    /// Whether IPv6, and the prefix length.
    lengths: BTreeSet<(Family, u8)>,
}

/// The block that a prefix is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Hit {
    clause: usize,
    block: usize,
    /// Whether the prefix is an exception of the block.
    except: bool,
}

impl Blocks {
    fn add(&mut self, clause: usize, blocks: &[(Prefix, Box<[Prefix]>)]) {
        for (block, (cidr, excepts)) in blocks.iter().enumerate() {
            let excepts = excepts.iter().map(|except| (*except, true));
            for (prefix, except) in std::iter::once((*cidr, false)).chain(excepts) {
                self.lengths.insert((prefix.family(), prefix.length()));
                self.by_prefix.entry(prefix).or_default().push(Hit { clause, block, except });
            }
        }
    }

    /// Clauses with a block that contains an address, each with the first such block.
    fn at(&self, address: IpAddr) -> BTreeMap<usize, usize> {
        let family = Family::of(address);
        let lengths = self.lengths.range((family, 0)..=(family, 128)).map(|(_, length)| *length);
        let prefixes = lengths.filter_map(|length| Prefix::containing(address, length).ok());
        let hits: Vec<Hit> = prefixes.filter_map(|prefix| self.by_prefix.get(&prefix)).flatten().copied().collect();
        let out: HashSet<(usize, usize)> =
            hits.iter().filter(|hit| hit.except).map(|hit| (hit.clause, hit.block)).collect();
        let mut found: BTreeMap<usize, usize> = BTreeMap::new();
        for Hit { clause, block, .. } in hits.into_iter().filter(|hit| !hit.except) {
            if !out.contains(&(clause, block)) {
                let first = found.entry(clause).or_insert(block);
                *first = block.min(*first);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(cidr: &str, excepts: &[&str]) -> (Prefix, Box<[Prefix]>) {
        (cidr.parse().unwrap(), excepts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn clauses_are_found_in_their_order_by_their_first_block() {
        let mut rules = Rules::default();
        let those = |blocks| PeerMatch::AnyOf { sets: Vec::new(), blocks };
        rules.add(0, 4, &those(vec![block("10.0.0.0/8", &["10.1.0.0/16"]), block("10.1.2.0/24", &[])]));
        rules.add(1, 0, &PeerMatch::Any);
        rules.add(1, 2, &those(vec![block("0.0.0.0/0", &[]), block("10.0.0.0/8", &[])]));
        rules.add(2, 0, &those(vec![block("::/0", &[])]));
        let at = |address: &str| -> Vec<(usize, usize, Option<usize>)> {
            let all = rules.candidates(address.parse().unwrap());
            all.map(|found| (found.policy, found.clause, found.block)).collect()
        };
        assert_eq!(at("10.9.0.1"), [(0, 4, Some(0)), (1, 0, None), (1, 2, Some(0))]);
        assert_eq!(at("10.1.2.3"), [(0, 4, Some(1)), (1, 0, None), (1, 2, Some(0))]);
        assert_eq!(at("10.1.3.3"), [(1, 0, None), (1, 2, Some(0))]);
        assert_eq!(at("2001:db8::1"), [(1, 0, None), (2, 0, Some(0))]);
    }
}
