//! Every pool against a model of plain sets, under random operations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netmodel::{
    AddressPool, ClaimError, ClusterCidr, IdError, IdPool, Prefix, SubnetClaimError, SubnetPool, check_disjoint,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[derive(Debug, Clone, Copy)]
enum Operation {
    Claim,
    Allocate,
    Release,
    Quarantine,
    Lift,
    Reclaim,
}
use Operation::*;

/// Allocations are twice as frequent, so that pools fill up.
fn operation() -> impl Strategy<Value = Operation> {
    select(vec![Claim, Allocate, Allocate, Release, Quarantine, Lift, Reclaim])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Taken,
    Quarantined,
}

/// Items that are not free; state changes are the same for addresses and subnets.
#[derive(Debug)]
struct Model<T>(BTreeMap<T, State>);

impl<T: Ord + Copy> Model<T> {
    /// Moves `item` to `to` if it is in one of the states `from`, where `None` is free.
    fn change(&mut self, item: T, from: &[Option<State>], to: Option<State>) -> bool {
        let applies = from.contains(&self.0.get(&item).copied());
        if applies {
            match to {
                Some(state) => self.0.insert(item, state),
                None => self.0.remove(&item),
            };
        }
        applies
    }

    fn count(&self, state: State) -> u128 {
        self.0.values().filter(|other| **other == state).count() as u128
    }

    /// An item that is not free; `other` if there is none.
    fn pick(&self, index: Index, other: T) -> T {
        if self.0.is_empty() { other } else { *index.get(&self.0.keys().copied().collect::<Vec<_>>()) }
    }
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

/// Small, medium and huge subnets.
fn subnet() -> impl Strategy<Value = Prefix> {
    let texts = [
        "10.128.2.0/32",
        "10.128.2.0/31",
        "10.128.2.0/30",
        "10.128.2.0/29",
        "10.128.2.0/27",
        "10.128.2.0/25",
        "255.255.255.0/24",
        "fd01::/128",
        "fd01::/126",
        "fd01::/123",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120",
        "fd01:0:0:2::/64",
    ];
    select(texts.map(prefix).to_vec())
}

/// Whether pods may have the address at this offset.
fn for_pods(subnet: Prefix, offset: u128) -> bool {
    let address = subnet.nth(offset);
    offset > 2 && address.is_some() && (subnet.is_ipv6() || address != Some(subnet.last()))
}

/// Next-fit, one address at a time.
fn next_fit(subnet: Prefix, model: &Model<IpAddr>, behind: u128) -> Option<(u128, IpAddr)> {
    let offsets = (behind + 1..subnet.size()).chain(0..subnet.size().min(behind + 1));
    let pods = offsets.filter(|offset| for_pods(subnet, *offset));
    pods.filter_map(|offset| Some((offset, subnet.nth(offset)?))).find(|(_, address)| !model.0.contains_key(address))
}

/// Cluster networks small enough to enumerate. The last entry has gaps and another order.
fn clusters() -> impl Strategy<Value = Vec<ClusterCidr>> {
    let lists: [&[&str]; 5] = [
        &[],
        &["10.128.0.0/20/23"],
        &["10.128.0.0/24/24", "10.132.0.0/22/26"],
        &["fd01::/60", "fd00::/62/66"],
        &["10.128.8.0/22/25", "10.128.0.0/22/24", "10.128.4.0/24/29"],
    ];
    let parsed = lists.map(|texts| texts.iter().map(|text| text.parse().expect("a cluster network")).collect());
    select(parsed.to_vec())
}

/// A prefix around a block of one of the networks, up to two bits shorter or longer.
fn near(clusters: &[ClusterCidr], index: Index, at: usize, change: i8) -> Prefix {
    if clusters.is_empty() {
        return prefix("10.0.0.0/8");
    }
    let ClusterCidr { cidr, node_length } = *index.get(clusters);
    let blocks = cidr.subnets(node_length).count();
    let block = cidr.subnets(node_length).nth(at % blocks).expect("a block");
    let address = if at.is_multiple_of(2) { block.network() } else { block.last() };
    Prefix::containing(address, node_length.saturating_add_signed(change)).expect("the length fits")
}

fn overlapping(model: &Model<Prefix>, subnet: Prefix) -> Option<Prefix> {
    model.0.keys().copied().find(|used| used.overlaps(subnet))
}

proptest! {
    #[test]
    fn an_address_pool_matches_its_model(
        subnet in subnet(),
        operations in prop::collection::vec((operation(), any::<bool>(), any::<Index>(), 0u128..140), 0..300),
    ) {
        let mut pool = AddressPool::new(subnet);
        let mut model = Model(BTreeMap::new());
        let mut behind = 2;
        let capacity = if subnet.size() > 1 << 16 {
            subnet.size() - 3
        } else {
            (0..subnet.size()).filter(|offset| for_pods(subnet, *offset)).count() as u128
        };
        prop_assert_eq!(pool.capacity(), capacity);

        for (operation, known, index, offset) in operations {
            // Sometimes past the end, sometimes counted from the end.
            let drawn = subnet.nth(offset).or_else(|| subnet.nth(subnet.size().checked_sub(offset % 7 + 1)?));
            let drawn = drawn.unwrap_or_else(|| "192.0.2.1".parse().expect("an address"));
            let address = if known { model.pick(index, drawn) } else { drawn };
            let inside = subnet.contains(address);
            let pods = subnet.offset(address).is_some_and(|offset| for_pods(subnet, offset));
            match operation {
                Allocate => {
                    let expected = next_fit(subnet, &model, behind);
                    prop_assert_eq!(pool.allocate(), expected.map(|(_, address)| address));
                    if let Some((offset, address)) = expected {
                        model.0.insert(address, State::Taken);
                        behind = offset;
                    }
                }
                Claim => match (pool.claim(address), model.0.get(&address)) {
                    (Ok(()), None) => {
                        prop_assert!(pods);
                        model.0.insert(address, State::Taken);
                    }
                    (Err(ClaimError::Taken { .. }), state) => prop_assert_eq!(state, Some(&State::Taken)),
                    (Err(ClaimError::Quarantined { .. }), state) => prop_assert_eq!(state, Some(&State::Quarantined)),
                    (Err(ClaimError::Reserved { .. }), state) => prop_assert!(inside && !pods && state.is_none()),
                    (Err(ClaimError::Outside { .. }), state) => prop_assert!(!inside && state.is_none()),
                    (Ok(()), Some(state)) => prop_assert!(false, "{} was {:?} already", address, state),
                },
                Release => {
                    let applies = model.change(address, &[Some(State::Taken)], None);
                    prop_assert_eq!(pool.release(address), applies);
                }
                Quarantine => {
                    let from = [Some(State::Taken), None];
                    let applies = pods && model.change(address, &from, Some(State::Quarantined));
                    prop_assert_eq!(pool.quarantine(address), applies);
                }
                Lift => {
                    let applies = model.change(address, &[Some(State::Quarantined)], None);
                    prop_assert_eq!(pool.lift(address), applies);
                }
                Reclaim => {
                    let applies = model.change(address, &[Some(State::Quarantined)], Some(State::Taken));
                    prop_assert_eq!(pool.reclaim(address), applies);
                }
            }
            prop_assert_eq!(pool.is_taken(address), model.0.get(&address) == Some(&State::Taken));
            prop_assert_eq!(pool.is_quarantined(address), model.0.get(&address) == Some(&State::Quarantined));
            prop_assert_eq!(pool.taken(), model.count(State::Taken));
            prop_assert_eq!(pool.quarantined(), model.count(State::Quarantined));
        }

        // Exhaustion is exact: every free address once, and then none.
        if capacity < 1 << 16 {
            let rest: Vec<IpAddr> = std::iter::from_fn(|| pool.allocate()).collect();
            prop_assert_eq!(rest.len() as u128, capacity - model.0.len() as u128);
            prop_assert!(rest.into_iter().all(|address| model.0.insert(address, State::Taken).is_none()));
        }
    }

    #[test]
    fn a_subnet_pool_matches_its_model(
        clusters in clusters(),
        operations in prop::collection::vec(
            (operation(), any::<bool>(), any::<Index>(), any::<usize>(), prop_oneof![4 => Just(0i8), 1 => -5i8..=2]),
            0..200,
        ),
    ) {
        let mut pool = SubnetPool::new(&clusters).expect("the networks are disjoint");
        let mut model = Model(BTreeMap::new());
        let blocks: Vec<Prefix> =
            clusters.iter().flat_map(|cluster| cluster.cidr.subnets(cluster.node_length)).collect();
        prop_assert_eq!(pool.capacity(), blocks.len() as u128);
        let lowest = |model: &Model<Prefix>| blocks.iter().copied().find(|block| overlapping(model, *block).is_none());

        for (operation, known, index, at, change) in operations {
            let drawn = near(&clusters, index, at, change);
            let subnet = if known { model.pick(index, drawn) } else { drawn };
            let inside = clusters.iter().any(|cluster| cluster.cidr.contains_prefix(subnet));
            let obstacle = overlapping(&model, subnet);
            match operation {
                Allocate => {
                    let expected = lowest(&model);
                    prop_assert_eq!(pool.allocate(), expected);
                    model.0.extend(expected.map(|block| (block, State::Taken)));
                }
                Claim => match pool.claim(subnet) {
                    Ok(()) => {
                        prop_assert!(inside && obstacle.is_none());
                        model.0.insert(subnet, State::Taken);
                    }
                    Err(SubnetClaimError::Outside { .. }) => prop_assert!(!inside),
                    Err(SubnetClaimError::Overlaps { with, .. }) => prop_assert!(inside && obstacle == Some(with)),
                },
                Release => {
                    let applies = model.change(subnet, &[Some(State::Taken)], None);
                    prop_assert_eq!(pool.release(subnet), applies);
                }
                Quarantine => {
                    let fits = inside && obstacle.is_none_or(|with| with == subnet);
                    let from = [Some(State::Taken), None];
                    let applies = fits && model.change(subnet, &from, Some(State::Quarantined));
                    prop_assert_eq!(pool.quarantine(subnet), applies);
                }
                Lift => {
                    let applies = model.change(subnet, &[Some(State::Quarantined)], None);
                    prop_assert_eq!(pool.lift(subnet), applies);
                }
                Reclaim => {
                    let applies = model.change(subnet, &[Some(State::Quarantined)], Some(State::Taken));
                    prop_assert_eq!(pool.reclaim(subnet), applies);
                }
            }
            prop_assert_eq!(pool.is_taken(subnet), model.0.get(&subnet) == Some(&State::Taken));
            prop_assert_eq!(pool.is_quarantined(subnet), model.0.get(&subnet) == Some(&State::Quarantined));
            prop_assert_eq!(pool.taken(), model.count(State::Taken));
            prop_assert_eq!(pool.quarantined(), model.count(State::Quarantined));
        }

        // Exhaustion is exact: every free block in order, and then none.
        let rest: Vec<Prefix> = std::iter::from_fn(|| pool.allocate()).collect();
        let free: Vec<Prefix> = blocks.iter().copied().filter(|block| overlapping(&model, *block).is_none()).collect();
        prop_assert_eq!(rest, free);
    }

    #[test]
    fn an_id_pool_matches_its_model(
        first in prop_oneof![0u32..100, Just(u32::MAX - 80)],
        length in 0u32..=80,
        operations in prop::collection::vec((select(vec![Claim, Allocate, Allocate, Release]), 0u32..90), 0..300),
    ) {
        let last = first + length;
        let mut pool = IdPool::new(first..=last);
        let mut model = BTreeSet::new();
        for (operation, offset) in operations {
            let id = first.saturating_add(offset);
            match operation {
                Allocate => {
                    let lowest = (first..=last).find(|id| !model.contains(id));
                    prop_assert_eq!(pool.allocate(), lowest);
                    model.extend(lowest);
                }
                Release => prop_assert_eq!(pool.release(id), model.remove(&id)),
                _ => match pool.claim(id) {
                    Ok(()) => prop_assert!(id <= last && model.insert(id)),
                    Err(IdError::Taken { .. }) => prop_assert!(model.contains(&id)),
                    Err(IdError::OutOfRange { .. }) => prop_assert!(id > last),
                },
            }
            prop_assert_eq!(pool.is_taken(id), model.contains(&id));
            prop_assert_eq!(pool.taken(), model.len() as u64);
            prop_assert_eq!(pool.capacity(), u64::from(length) + 1);
        }
    }

    #[test]
    fn the_order_of_claims_does_not_matter(offsets in prop::collection::hash_set(3u128..500, 0..300)) {
        let subnet = prefix("10.128.0.0/23");
        let claim = |pool: &mut AddressPool, offset| pool.claim(subnet.nth(offset).expect("an address"));
        let (mut drawn, mut sorted) = (AddressPool::new(subnet), AddressPool::new(subnet));
        for &offset in &offsets {
            prop_assert_eq!(claim(&mut drawn, offset), Ok(()));
        }
        for offset in offsets.into_iter().collect::<BTreeSet<_>>() {
            prop_assert_eq!(claim(&mut sorted, offset), Ok(()));
        }
        let (drawn, sorted) = (std::iter::from_fn(|| drawn.allocate()), std::iter::from_fn(|| sorted.allocate()));
        prop_assert!(drawn.eq(sorted));
    }

    #[test]
    fn cluster_networks_round_trip(bits in any::<u32>(), length in 0u8..=29, more in 0u8..=29) {
        let cidr = Prefix::containing(IpAddr::V4(bits.into()), length).expect("the length fits");
        let cluster = ClusterCidr { cidr, node_length: (length + more).min(29) };
        prop_assert_eq!(cluster.to_string().parse(), Ok(cluster));
    }

    #[test]
    fn no_text_of_a_cluster_network_panics(text in prop_oneof![".*", "[0-9a-f:./+-]{0,40}", "10.0.0.0/[0-9/]{0,8}"]) {
        match text.parse::<ClusterCidr>() {
            Ok(cluster) => prop_assert_eq!(cluster.to_string().parse(), Ok(cluster)),
            Err(refusal) => prop_assert!(!refusal.to_string().contains('\n')),
        }
    }

    #[test]
    fn overlaps_are_found_exactly(
        drawn in prop::collection::vec((any::<u32>(), 0u8..=12), 0..6),
    ) {
        let networks: Vec<(&str, Prefix)> = drawn
            .into_iter()
            .map(|(bits, length)| ("a", Prefix::containing(IpAddr::V4(bits.into()), length).expect("the length fits")))
            .collect();
        let pairs = (0..networks.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        let overlap = pairs.into_iter().any(|(one, other)| networks[one].1.overlaps(networks[other].1));
        match check_disjoint(&networks) {
            Ok(()) => prop_assert!(!overlap),
            Err(error) => prop_assert!(error.prefix.overlaps(error.other)),
        }
    }
}
