//! Session affinity: a client keeps its endpoint as long as the endpoint exists.
//!
//! Open vSwitch and the packet filter select a slot in a list of endpoints by a hash of the client's address. In a plain list
//! most endpoints change their slot when one is removed, and their clients move. So the list has a fixed number of slots, many
//! more than endpoints, and each slot belongs to the endpoint with the highest score for it (rendezvous hashing): a removed
//! endpoint changes only its own slots, a new one takes slots from all others evenly.
//!
//! The score depends on addresses alone, so a client gets the same pod on all ports of a Service, on every node.

use super::Target;

/// Number of endpoints up to which a number of slots is used: at least eight per endpoint, so that loads differ little.
const SIZES: [(usize, usize); 3] = [(8, 64), (32, 256), (128, 1024)];
/// Slots per endpoint beyond that.
const SLOTS_EACH: usize = 8;

/// The endpoint of each slot; one slot for a single endpoint.
pub(crate) fn affinity_slots(endpoints: &[Target]) -> Vec<Target> {
    if endpoints.len() < 2 {
        return endpoints.to_vec();
    }
    let size = SIZES.iter().find(|(most, _)| endpoints.len() <= *most).map(|(_, slots)| *slots);
    let size = size.unwrap_or_else(|| (endpoints.len() * SLOTS_EACH).next_power_of_two());
    let owner = |slot: usize| endpoints.iter().copied().max_by_key(|endpoint| (score(slot, endpoint), *endpoint));
    (0..size).filter_map(owner).collect()
}

/// Must never change: a client must not move because of an upgrade.
fn score(slot: usize, (address, _): &Target) -> u64 {
    let bits = match address {
        std::net::IpAddr::V4(address) => u128::from(u32::from(*address)),
        std::net::IpAddr::V6(address) => u128::from(*address),
    };
    let [low, high] = [bits, bits >> 64].map(|part| u64::try_from(part & u128::from(u64::MAX)).unwrap_or_default());
    mixed(mixed(low ^ mixed(high)) ^ u64::try_from(slot).unwrap_or_default())
}

/// The finalizer of SplitMix64: every bit of the number changes about half of the result's.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn endpoints(count: u8) -> Vec<Target> {
        (0..count).map(|last| (IpAddr::from(Ipv4Addr::new(10, 128, last % 3, last)), 8080)).collect()
    }

    #[test]
    fn removing_an_endpoint_moves_only_its_clients() {
        for count in [3, 5, 8, 11, 32, 100] {
            let all = endpoints(count);
            let before = affinity_slots(&all);
            for gone in 0..all.len() {
                let mut rest = all.clone();
                let gone = rest.remove(gone);
                let after = affinity_slots(&rest);
                if before.len() != after.len() {
                    continue;
                }
                for (before, after) in before.iter().zip(&after) {
                    assert!(before == after || *before == gone, "{before:?} moved to {after:?} without {gone:?}");
                }
            }
        }
    }

    #[test]
    fn loads_are_even_in_any_order_of_endpoints() {
        for count in [2, 5, 8, 32, 100, 200] {
            let mut all = endpoints(count);
            let slots = affinity_slots(&all);
            let each: Vec<usize> = all.iter().map(|one| slots.iter().filter(|slot| *slot == one).count()).collect();
            let mean = slots.len() / all.len();
            assert!(each.iter().all(|own| *own >= 1 && *own <= 3 * mean), "{count}: {each:?}");
            all.reverse();
            assert_eq!(affinity_slots(&all), slots);
        }
        assert_eq!((affinity_slots(&[]).len(), affinity_slots(&endpoints(1)).len()), (0, 1));
    }

    #[test]
    fn a_client_gets_the_same_pod_on_all_ports() {
        let one = affinity_slots(&endpoints(5));
        let other: Vec<Target> = endpoints(5).into_iter().map(|(address, _)| (address, 53)).collect();
        assert!(affinity_slots(&other).iter().zip(&one).all(|(other, one)| other.0 == one.0));
    }

    /// Fixed values: a change would move clients of running clusters.
    #[test]
    fn slots_do_not_change_between_versions() {
        let last = |(address, _): &Target| address.to_string().rsplit('.').next().map(str::to_owned);
        let lasts: String = affinity_slots(&endpoints(3)).iter().take(16).filter_map(last).collect();
        assert_eq!(lasts, "2020021022202211");
    }
}
