//! blocks: which clauses of policies can be about an address. A policy may have thousands of blocks, and a question about a
//! network asks for an address in each of them: so blocks are looked up by their prefixes, and not one after the other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use netmodel::Prefix;
use topology::rules::Others;

/// The clauses of a tier that are about what a pod sends or gets, in the order in which they are asked.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The policies that are about the pod, by their places in the tier.
    pub(super) about: Vec<usize>,
    /// Policy and clause, by their places.
    clauses: Vec<(usize, usize)>,
    /// Those that not only blocks decide.
    asked: Vec<usize>,
    blocks: Blocks,
}

/// A clause that may be about an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) policy: usize,
    pub(super) clause: usize,
    /// The first of its blocks that has the address.
    pub(super) block: Option<usize>,
}

impl Rules {
    /// Adds the clause that comes next.
    pub(super) fn add(&mut self, policy: usize, clause: usize, others: &Others) {
        let place = self.clauses.len();
        self.clauses.push((policy, clause));
        match others {
            Others::Anyone => self.asked.push(place),
            Others::Those { sets, blocks } => {
                if !sets.is_empty() {
                    self.asked.push(place);
                }
                self.blocks.add(place, blocks);
            }
            Others::Within { blocks, .. } => {
                self.asked.push(place);
                self.blocks.add(place, blocks);
            }
        }
    }

    /// The clauses that may be about an address, in their order; no other one is.
    pub(super) fn candidates(&self, address: IpAddr) -> impl Iterator<Item = Candidate> {
        let hits = self.blocks.at(address);
        let mut places: Vec<usize> = self.asked.iter().chain(hits.keys()).copied().collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(move |place| {
            let (policy, clause) = self.clauses[place];
            Candidate { policy, clause, block: hits.get(&place).copied() }
        })
    }
}

/// The blocks of many clauses, by prefix.
#[derive(Debug, Default)]
struct Blocks {
    by_prefix: HashMap<Prefix, Vec<Hit>>,
    /// IPv6 or not, and the length.
    lengths: BTreeSet<(bool, u8)>,
}

/// A block of a clause that a prefix belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Hit {
    clause: usize,
    block: usize,
    /// Whether it is one of the prefixes that are taken out of the block.
    except: bool,
}

impl Blocks {
    fn add(&mut self, clause: usize, blocks: &[(Prefix, Box<[Prefix]>)]) {
        for (block, (cidr, excepts)) in blocks.iter().enumerate() {
            let excepts = excepts.iter().map(|except| (*except, true));
            for (prefix, except) in std::iter::once((*cidr, false)).chain(excepts) {
                self.lengths.insert((prefix.is_ipv6(), prefix.length()));
                self.by_prefix.entry(prefix).or_default().push(Hit { clause, block, except });
            }
        }
    }

    /// The clauses that have a block with an address, each with the first such block.
    fn at(&self, address: IpAddr) -> BTreeMap<usize, usize> {
        let v6 = address.is_ipv6();
        let lengths = self.lengths.range((v6, 0)..=(v6, 128)).map(|(_, length)| *length);
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
        let those = |blocks| Others::Those { sets: Vec::new(), blocks };
        rules.add(0, 4, &those(vec![block("10.0.0.0/8", &["10.1.0.0/16"]), block("10.1.2.0/24", &[])]));
        rules.add(1, 0, &Others::Anyone);
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
