//! Session affinity: which endpoint a client has as long as it is there.
//!
//! Open vSwitch and the packet filter choose a *place* in a list of endpoints by a hash of the client's address. In a plain
//! list most endpoints change their place when one goes, and their clients move. So the list has a fixed number of places,
//! many more than there are endpoints, and every place belongs to the endpoint that scores highest for it (rendezvous
//! hashing): when an endpoint goes only its own places change, when one comes it takes places from all others alike.
//!
//! The score depends on addresses alone, so a client has the same pod on all ports of a Service, on every node.

use super::Target;

/// Places, for up to how many endpoints: each has eight on average, so that loads differ little.
const SIZES: [(usize, usize); 3] = [(8, 64), (32, 256), (128, 1024)];
/// Endpoints beyond that share more places, but not more evenly.
const PLACES_EACH: usize = 8;

/// The endpoints in their places; a single one needs no more than one.
pub(crate) fn places(endpoints: &[Target]) -> Vec<Target> {
    if endpoints.len() < 2 {
        return endpoints.to_vec();
    }
    let size = SIZES.iter().find(|(most, _)| endpoints.len() <= *most).map(|(_, places)| *places);
    let size = size.unwrap_or_else(|| (endpoints.len() * PLACES_EACH).next_power_of_two());
    let owner = |place: usize| endpoints.iter().copied().max_by_key(|endpoint| (score(place, endpoint), *endpoint));
    (0..size).filter_map(owner).collect()
}

/// The same in every version and on every machine: a client must not move because of an upgrade.
fn score(place: usize, (address, _): &Target) -> u64 {
    let bits = match address {
        std::net::IpAddr::V4(address) => u128::from(u32::from(*address)),
        std::net::IpAddr::V6(address) => u128::from(*address),
    };
    let [low, high] = [bits, bits >> 64].map(|part| u64::try_from(part & u128::from(u64::MAX)).unwrap_or_default());
    mixed(mixed(low ^ mixed(high)) ^ u64::try_from(place).unwrap_or_default())
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
    fn only_the_clients_of_one_that_goes_move_and_others_only_to_one_that_comes() {
        for count in [3, 5, 8, 11, 32, 100] {
            let all = endpoints(count);
            let before = places(&all);
            for gone in 0..all.len() {
                let mut rest = all.clone();
                let gone = rest.remove(gone);
                let after = places(&rest);
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
    fn loads_are_even_and_the_order_does_not_matter() {
        for count in [2, 5, 8, 32, 100, 200] {
            let mut all = endpoints(count);
            let placed = places(&all);
            let each: Vec<usize> = all.iter().map(|one| placed.iter().filter(|place| *place == one).count()).collect();
            let mean = placed.len() / all.len();
            assert!(each.iter().all(|own| *own >= 1 && *own <= 3 * mean), "{count}: {each:?}");
            all.reverse();
            assert_eq!(places(&all), placed);
        }
        assert_eq!((places(&[]).len(), places(&endpoints(1)).len()), (0, 1));
    }

    #[test]
    fn a_client_has_the_same_pod_on_all_ports() {
        let one = places(&endpoints(5));
        let other: Vec<Target> = endpoints(5).into_iter().map(|(address, _)| (address, 53)).collect();
        assert!(places(&other).iter().zip(&one).all(|(other, one)| other.0 == one.0));
    }

    /// Written down, so that no change of the code moves anybody's clients unnoticed.
    #[test]
    fn places_stay_as_they_are() {
        let last = |(address, _): &Target| address.to_string().rsplit('.').next().map(str::to_owned);
        let lasts: String = places(&endpoints(3)).iter().take(16).filter_map(last).collect();
        assert_eq!(lasts, "2020021022202211");
    }
}
