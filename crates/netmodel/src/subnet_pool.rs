//! `SubnetPool`: allocation of node subnets from the cluster's networks.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{ClusterCidr, ClusterCidrError, Prefix};

/// The node subnets of one address family: each is free, taken or quarantined, as in
/// [`AddressPool`](crate::AddressPool).
///
/// A block is a subnet of the node length of its CIDR. [`allocate`](Self::allocate) returns blocks; the subnets that
/// nodes have may be of any length, because an operator can change the node length of a running cluster. A
/// change that does not apply does nothing and returns false.
#[derive(Debug, Clone)]
pub struct SubnetPool {
    spaces: Vec<Space>,
    /// Disjoint, and each within one of the spaces.
    used: BTreeMap<Prefix, State>,
    quarantined: u128,
}

/// One network of the pool, and where to look for free subnets.
#[derive(Debug, Clone)]
struct Space {
    cluster: ClusterCidr,
    /// No block before the one around this offset is free, so `allocate` looks from there; `None` when none is.
    lowest: Option<u128>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Taken,
    Quarantined,
}

/// Why node subnets cannot be allocated from these networks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubnetPoolError {
    /// The node length of a network does not fit.
    #[error(transparent)]
    Cidr(#[from] ClusterCidrError),
    /// There are IPv4 and IPv6 networks.
    #[error("{one} and {other} are of two address families: make a pool for each")]
    Families {
        /// The network that comes first.
        one: ClusterCidr,
        /// The first one of the other family.
        other: ClusterCidr,
    },
    /// Two networks share addresses.
    #[error("{one} overlaps {other}: give each a network of its own")]
    Overlap {
        /// The network that comes first.
        one: ClusterCidr,
        /// The network that comes later.
        other: ClusterCidr,
    },
}

/// Why a subnet cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubnetClaimError {
    /// The subnet is not within one of the networks.
    #[error("subnet {subnet} is outside the cluster's networks ({networks})")]
    Outside {
        /// The subnet as it was given.
        subnet: Prefix,
        /// The networks of the pool, as operators write them.
        networks: String,
    },
    /// The subnet shares addresses with one that is not free.
    #[error("subnet {subnet} overlaps {with}, which is already taken or in quarantine")]
    Overlaps {
        /// The subnet as it was given.
        subnet: Prefix,
        /// The first one of those that it overlaps.
        with: Prefix,
    },
}

impl SubnetPool {
    /// The pool of these networks, with every block free. They must be of one family and disjoint.
    pub fn new(clusters: &[ClusterCidr]) -> Result<Self, SubnetPoolError> {
        for (index, &one) in clusters.iter().enumerate() {
            one.check()?;
            for &other in clusters.iter().skip(index + 1) {
                if one.cidr.is_ipv6() != other.cidr.is_ipv6() {
                    return Err(SubnetPoolError::Families { one, other });
                }
                if one.cidr.overlaps(other.cidr) {
                    return Err(SubnetPoolError::Overlap { one, other });
                }
            }
        }
        let spaces = clusters.iter().map(|&cluster| Space { cluster, lowest: Some(0) }).collect();
        Ok(Self { spaces, used: BTreeMap::new(), quarantined: 0 })
    }

    /// How many blocks there are, in whatever state.
    pub fn capacity(&self) -> u128 {
        self.spaces.iter().fold(0, |sum, space| sum.saturating_add(space.blocks()))
    }

    /// How many subnets are taken.
    pub fn taken(&self) -> u128 {
        // A `usize` always fits.
        u128::try_from(self.used.len()).unwrap_or(u128::MAX) - self.quarantined
    }

    /// How many subnets are quarantined.
    pub fn quarantined(&self) -> u128 {
        self.quarantined
    }

    /// Is this very subnet taken? A quarantined one is not.
    pub fn is_taken(&self, subnet: Prefix) -> bool {
        self.used.get(&subnet) == Some(&State::Taken)
    }

    /// Whether this very subnet is quarantined; false for parts of one.
    pub fn is_quarantined(&self, subnet: Prefix) -> bool {
        self.used.get(&subnet) == Some(&State::Quarantined)
    }

    /// Takes this very subnet: what a restart does with the subnets that nodes have already. It may be of another
    /// length than blocks are.
    pub fn claim(&mut self, subnet: Prefix) -> Result<(), SubnetClaimError> {
        self.check_free(subnet)?;
        self.used.insert(subnet, State::Taken);
        Ok(())
    }

    /// Takes the lowest free block of the first network that has one; `None` when no block is wholly free.
    pub fn allocate(&mut self) -> Option<Prefix> {
        let used = &self.used;
        let block = self.spaces.iter_mut().find_map(|space| space.lowest_free(used))?;
        self.used.insert(block, State::Taken);
        Some(block)
    }

    /// Taken becomes free; false if it was not taken.
    pub fn release(&mut self, subnet: Prefix) -> bool {
        let applies = self.is_taken(subnet);
        if applies {
            self.free(subnet);
        }
        applies
    }

    /// Taken or free becomes quarantined; false if it was already, or could not be claimed.
    pub fn quarantine(&mut self, subnet: Prefix) -> bool {
        let applies = self.is_taken(subnet) || self.check_free(subnet).is_ok();
        if applies {
            self.used.insert(subnet, State::Quarantined);
            self.quarantined += 1;
        }
        applies
    }

    /// Quarantined becomes free; false if it was not quarantined.
    pub fn lift(&mut self, subnet: Prefix) -> bool {
        let applies = self.is_quarantined(subnet);
        if applies {
            self.quarantined -= 1;
            self.free(subnet);
        }
        applies
    }

    /// Quarantined becomes taken, because its node came back; false if it was not quarantined.
    pub fn reclaim(&mut self, subnet: Prefix) -> bool {
        let applies = self.is_quarantined(subnet);
        if applies {
            self.quarantined -= 1;
            self.used.insert(subnet, State::Taken);
        }
        applies
    }

    fn check_free(&self, subnet: Prefix) -> Result<(), SubnetClaimError> {
        if !self.spaces.iter().any(|space| space.cluster.cidr.contains_prefix(subnet)) {
            let networks: Vec<String> = self.spaces.iter().map(|space| space.cluster.to_string()).collect();
            return Err(SubnetClaimError::Outside { subnet, networks: networks.join(", ") });
        }
        match overlapping(&self.used, subnet) {
            Some(with) => Err(SubnetClaimError::Overlaps { subnet, with }),
            None => Ok(()),
        }
    }

    fn free(&mut self, subnet: Prefix) {
        self.used.remove(&subnet);
        if let Some(space) = self.spaces.iter_mut().find(|space| space.cluster.cidr.contains_prefix(subnet)) {
            space.look_again_at(subnet);
        }
    }
}

impl Space {
    fn blocks(&self) -> u128 {
        // Never 128 or more: no node length is that long.
        1 << self.cluster.node_length.saturating_sub(self.cluster.cidr.length())
    }

    /// The block at or around this offset; `None` behind the end.
    fn block(&self, offset: u128) -> Option<Prefix> {
        Prefix::containing(self.cluster.cidr.nth(offset)?, self.cluster.node_length).ok()
    }

    /// Where to look after this block, which the obstacle covers or is in.
    fn behind(&self, block: Prefix, obstacle: Prefix) -> Option<u128> {
        self.cluster.cidr.offset(block.last().max(obstacle.last()))?.checked_add(1)
    }

    /// The first block that overlaps nothing in `used`; remembers how far it looked.
    fn lowest_free(&mut self, used: &BTreeMap<Prefix, State>) -> Option<Prefix> {
        while let Some(block) = self.lowest.and_then(|offset| self.block(offset)) {
            match overlapping(used, block) {
                // One step for each obstacle, however many blocks it covers.
                Some(obstacle) => self.lowest = self.behind(block, obstacle),
                None => return Some(block),
            }
        }
        self.lowest = None;
        None
    }

    /// A subnet became free, and perhaps its block with it.
    fn look_again_at(&mut self, subnet: Prefix) {
        let offset = self.cluster.cidr.offset(subnet.network());
        self.lowest = self.lowest.into_iter().chain(offset).min();
    }
}

/// The first of `used`, which are disjoint, that shares an address with `subnet`: the one that begins at or before it,
/// or the one that begins within it.
fn overlapping(used: &BTreeMap<Prefix, State>, subnet: Prefix) -> Option<Prefix> {
    let before = used.range(..=subnet).next_back();
    let within = used.range(subnet..).next();
    before.into_iter().chain(within).map(|(used, _)| *used).find(|used| used.overlaps(subnet))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    fn pool(clusters: &[&str]) -> Result<SubnetPool, SubnetPoolError> {
        let clusters: Vec<ClusterCidr> = clusters.iter().map(|text| text.parse().expect("a cluster network")).collect();
        SubnetPool::new(&clusters)
    }

    fn given(pool: &mut SubnetPool) -> Option<String> {
        pool.allocate().map(|subnet| subnet.to_string())
    }

    #[test]
    fn the_networks_are_used_up_in_their_order() {
        let mut pool = pool(&["10.132.0.0/22/23", "10.128.0.0/24/25"]).expect("a pool");
        assert_eq!(pool.capacity(), 4);
        let all: Vec<String> = std::iter::from_fn(|| given(&mut pool)).collect();
        assert_eq!(all, ["10.132.0.0/23", "10.132.2.0/23", "10.128.0.0/25", "10.128.0.128/25"]);
        assert!(pool.release(prefix("10.132.2.0/23")) && pool.release(prefix("10.132.0.0/23")));
        assert_eq!(given(&mut pool).as_deref(), Some("10.132.0.0/23"));
        assert_eq!(pool.taken(), 3);
    }

    #[test]
    fn claimed_subnets_of_any_length_are_respected() {
        let mut pool = pool(&["10.128.0.0/16/24"]).expect("a pool");
        // Nodes of a time with larger blocks and of one with smaller ones.
        for subnet in ["10.128.0.0/22", "10.128.4.128/25", "10.128.6.0/24"] {
            assert_eq!(pool.claim(prefix(subnet)), Ok(()));
        }
        assert_eq!(given(&mut pool).as_deref(), Some("10.128.5.0/24"));
        assert_eq!(given(&mut pool).as_deref(), Some("10.128.7.0/24"));
        assert!(pool.release(prefix("10.128.4.128/25")));
        assert_eq!(given(&mut pool).as_deref(), Some("10.128.4.0/24"));
        assert!(pool.release(prefix("10.128.0.0/22")));
        assert_eq!(given(&mut pool).as_deref(), Some("10.128.0.0/24"));
    }

    #[test]
    fn a_rejected_claim_states_the_reason() {
        let mut pool = pool(&["10.128.0.0/14/23", "10.132.0.0/16/24"]).expect("a pool");
        let refusal = |pool: &mut SubnetPool, text| pool.claim(prefix(text)).expect_err("refused").to_string();
        for outside in ["10.133.0.0/24", "10.128.0.0/13", "fd01::/64"] {
            let message =
                format!("subnet {outside} is outside the cluster's networks (10.128.0.0/14/23, 10.132.0.0/16/24)");
            assert_eq!(refusal(&mut pool, outside), message);
        }
        assert_eq!(pool.claim(prefix("10.128.2.0/23")), Ok(()));
        for text in ["10.128.0.0/22", "10.128.2.0/23", "10.128.3.0/24"] {
            let message = format!("subnet {text} overlaps 10.128.2.0/23, which is already taken or in quarantine");
            assert_eq!(refusal(&mut pool, text), message);
        }
    }

    #[test]
    fn quarantine_ends_with_lift_or_with_the_node() {
        let mut pool = pool(&["10.128.0.0/23/24"]).expect("a pool");
        let (one, two) = (prefix("10.128.0.0/24"), prefix("10.128.1.0/24"));
        assert_eq!(pool.allocate(), Some(one));
        assert!(pool.quarantine(one) && pool.quarantine(two));
        assert!(!pool.quarantine(one) && !pool.quarantine(prefix("10.128.0.0/25")) && !pool.release(one));
        assert_eq!((pool.taken(), pool.quarantined(), pool.allocate()), (0, 2, None));
        assert!(pool.reclaim(one) && pool.lift(two));
        assert!(pool.is_taken(one) && !pool.reclaim(one) && !pool.lift(two));
        assert_eq!((pool.allocate(), pool.allocate()), (Some(two), None));
    }

    #[test]
    fn incompatible_networks_are_rejected() {
        let refusal = |clusters: &[&str]| pool(clusters).expect_err("refused").to_string();
        assert_eq!(
            refusal(&["10.128.0.0/14/23", "10.132.0.0/14", "10.130.0.0/16/24"]),
            "10.128.0.0/14/23 overlaps 10.130.0.0/16/24: give each a network of its own"
        );
        assert!(refusal(&["10.128.0.0/14/23", "fd01::/48"]).contains("10.128.0.0/14/23 and fd01::/48/64"));
        let unchecked = ClusterCidr { cidr: prefix("10.128.0.0/14"), node_length: 8 };
        assert!(matches!(SubnetPool::new(&[unchecked]), Err(SubnetPoolError::Cidr(_))));
        assert_eq!(pool(&[]).expect("an empty pool").allocate(), None);
    }

    #[test]
    fn huge_networks_cost_what_is_taken() {
        let mut cluster = pool(&["fd01::/48"]).expect("a pool");
        assert_eq!(cluster.capacity(), 1 << 16);
        assert_eq!(cluster.claim(prefix("fd01::/49")), Ok(()));
        assert_eq!(given(&mut cluster).as_deref(), Some("fd01:0:0:8000::/64"));
        assert_eq!(cluster.claim(prefix("fd01:0:0:ffff::/64")), Ok(()));
        assert_eq!(std::iter::from_fn(|| cluster.allocate()).count(), (1 << 15) - 2);
        assert!(cluster.release(prefix("fd01:0:0:ffff::/64")));
        assert_eq!(given(&mut cluster).as_deref(), Some("fd01:0:0:ffff::/64"));

        let mut everything = pool(&["::/0/126"]).expect("a pool");
        assert_eq!(everything.capacity(), 1 << 126);
        assert_eq!(everything.claim(prefix("::/1")), Ok(()));
        assert_eq!(given(&mut everything).as_deref(), Some("8000::/126"));
        assert_eq!(everything.claim(prefix("c000::/2")), Ok(()));
        let whole = ClusterCidr { cidr: prefix("::/0"), node_length: 0 };
        let mut whole = SubnetPool::new(&[whole]).expect("a pool");
        assert_eq!((whole.allocate(), whole.allocate()), (Some(prefix("::/0")), None));
    }
}
