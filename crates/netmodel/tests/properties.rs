//! Properties of prefixes, interface addresses and MACs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netmodel::{InterfaceAddress, Mac, Prefix};
use proptest::prelude::*;

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

fn interface() -> impl Strategy<Value = InterfaceAddress> {
    address().prop_flat_map(|address| {
        let longest = if address.is_ipv6() { 128 } else { 32 };
        (0u8..=longest).prop_map(move |length| InterfaceAddress::new(address, length).expect("the length fits"))
    })
}

fn prefix() -> impl Strategy<Value = Prefix> {
    interface().prop_map(InterfaceAddress::network)
}

/// Texts that resemble addresses enough to pass the first check.
fn almost_an_address() -> impl Strategy<Value = String> {
    prop_oneof![".*", "[0-9a-f:./+ -]{0,40}", "[0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9+-]{0,4}", "[0-9a-f:]{2,20}/[0-9]{1,4}"]
}

proptest! {
    #[test]
    fn display_then_parse_is_identity(interface in interface(), bytes in any::<[u8; 6]>()) {
        prop_assert_eq!(interface.to_string().parse(), Ok(interface));
        prop_assert_eq!(interface.network().to_string().parse(), Ok(interface.network()));
        prop_assert_eq!(Mac::new(bytes).to_string().parse(), Ok(Mac::new(bytes)));
    }

    #[test]
    fn no_text_panics_and_valid_text_round_trips(text in almost_an_address()) {
        if let Ok(prefix) = text.parse::<Prefix>() {
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
        if let Ok(interface) = text.parse::<InterfaceAddress>() {
            prop_assert!(interface.network().contains(interface.address()));
        }
        if let Err(refusal) = text.parse::<Prefix>() {
            prop_assert!(!refusal.to_string().contains('\n'));
        }
        if let Ok(mac) = text.parse::<Mac>() {
            prop_assert_eq!(mac.to_string(), text.to_ascii_lowercase());
        }
    }

    #[test]
    fn nth_stays_within_and_counts_from_the_network(prefix in prefix(), n in any::<u128>()) {
        let inside = n % prefix.size();
        let address = prefix.nth(inside).expect("smaller than the size");
        prop_assert!(prefix.contains(address));
        prop_assert!(prefix.network() <= address && address <= prefix.last());
        prop_assert_eq!(prefix.nth(0), Some(prefix.network()));
        prop_assert_eq!(prefix.offset(address), Some(inside));
        if prefix.size() < u128::MAX {
            prop_assert_eq!(prefix.nth(prefix.size() - 1), Some(prefix.last()));
            prop_assert_eq!(prefix.nth(prefix.size()), None);
        }
    }

    #[test]
    fn subnets_are_disjoint_and_cover(prefix in prefix(), deeper in 0u8..=8) {
        let longest = if prefix.is_ipv6() { 128 } else { 32 };
        let length = prefix.length().saturating_add(deeper).min(longest);
        let subnets: Vec<Prefix> = prefix.subnets(length).collect();

        prop_assert_eq!(subnets.len(), 1usize << (length - prefix.length()));
        prop_assert_eq!(subnets[0].network(), prefix.network());
        prop_assert_eq!(subnets[subnets.len() - 1].last(), prefix.last());
        for pair in subnets.windows(2) {
            prop_assert!(!pair[0].overlaps(pair[1]));
            prop_assert!(pair[0] < pair[1]);
        }
        for (n, subnet) in subnets.iter().enumerate() {
            prop_assert!(prefix.contains_prefix(*subnet));
            prop_assert_eq!(subnet.length(), length);
            prop_assert_eq!(prefix.subnets(length).nth(n), Some(*subnet));
        }
        prop_assert_eq!(prefix.subnets(length).nth(subnets.len()), None);
        // There are no gaps: the sizes add up.
        let total = subnets.iter().fold(0u128, |sum, subnet| sum.saturating_add(subnet.size()));
        prop_assert_eq!(total, prefix.size());
    }

    #[test]
    fn overlap_means_a_shared_address(one in prefix(), length in 0u8..=32, bits in any::<u32>()) {
        let other = Prefix::containing(IpAddr::V4(Ipv4Addr::from_bits(bits)), length).expect("the length fits");
        prop_assert_eq!(one.overlaps(other), other.overlaps(one));
        let shares_an_end = one.contains(other.network()) || other.contains(one.network());
        prop_assert_eq!(one.overlaps(other), shares_an_end);
        prop_assert!(one.overlaps(one) && one.contains_prefix(one));
    }

    #[test]
    fn ipv4_addresses_keep_distinct_macs(one in any::<u32>(), other in any::<u32>()) {
        let mac = |bits| Mac::for_address(IpAddr::V4(Ipv4Addr::from_bits(bits)));
        prop_assert_eq!(mac(one) == mac(other), one == other);
    }
}
