//! networks: a network in parts whose addresses all get the same answer.
//!
//! A part ends wherever an answer can change: at policies' blocks and Services' source ranges, at networks of the cluster
//! and of its routers, and at every address that somebody has (pods, nodes and their management ports, Services, the
//! masquerade network). Prefixes are nested or apart, so addresses that nobody has are alike if the smallest prefix around
//! them is the same. One of them is asked about, and answers for all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use netmodel::{Masquerade, Prefix};

use super::{Judge, Party, Step, is_single, step};

/// Ranges of addresses that all get the same answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Its place among the parts of the network; from 1.
    pub(super) number: usize,
    list: Vec<(IpAddr, IpAddr)>,
}

impl Ranges {
    /// Parts together, in the order of addresses.
    pub(super) fn shown<'r>(parts: impl Iterator<Item = &'r Self>) -> String {
        let mut list: Vec<(IpAddr, IpAddr)> = parts.flat_map(|part| part.list.iter().copied()).collect();
        list.sort_unstable();
        let mut merged: Vec<(IpAddr, IpAddr)> = Vec::new();
        for (first, last) in list {
            match merged.last_mut() {
                Some(before) if after(before.1) == Some(first) => before.1 = last,
                _ => merged.push((first, last)),
            }
        }
        let range = |(first, last): &(IpAddr, IpAddr)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        merged.iter().map(range).collect::<Vec<_>>().join(", ")
    }
}

/// Somebody who is asked about, with the part of a network that it stands for.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) party: Party,
    pub(super) ranges: Option<Rc<Ranges>>,
}

/// Where the addresses of networks differ from each other.
#[derive(Debug, Default)]
pub(super) struct Boundaries {
    prefixes: BTreeSet<Prefix>,
    singles: BTreeSet<IpAddr>,
}

impl Judge<'_> {
    /// A network in its parts, with steps on what is left out; anybody else as it is.
    pub(super) fn parts(&self, party: &Party) -> (Vec<Part>, Vec<Step>) {
        let Party::Network(network) = party else {
            return (vec![Part { party: party.clone(), ranges: None }], Vec::new());
        };
        if is_single(*network) {
            return (vec![Part { party: party.clone(), ranges: None }], Vec::new());
        }
        // Who asks about the whole Internet does not ask about the cluster's own networks, where most addresses are nobody's.
        let own = self.own_networks(network.is_ipv6());
        let left_out: Vec<(&str, Prefix)> = match own.iter().any(|(_, own)| own.contains_prefix(*network)) {
            true => Vec::new(),
            false => own.into_iter().filter(|(_, own)| network.contains_prefix(*own)).collect(),
        };
        let boundaries = self.boundaries.get_or_init(|| self.find_boundaries());
        let parts = boundaries.cut(*network, &left_out.iter().map(|(_, own)| *own).collect::<Vec<_>>());
        let told = left_out.into_iter().map(|(field, own)| {
            let says = format!("{own} is the cluster's own and is left out: ask about it by itself");
            step(network.to_string(), field, says)
        });
        (parts, told.collect())
    }

    /// The networks that belong to the cluster, by their settings.
    fn own_networks(&self, v6: bool) -> Vec<(&'static str, Prefix)> {
        let settings = self.given.settings;
        let named = |field, networks: &[Prefix]| {
            let of_family = networks.iter().copied().filter(|network| network.is_ipv6() == v6);
            of_family.map(|network| (field, network)).collect::<Vec<_>>()
        };
        let pods: Vec<Prefix> = settings.cluster_of(v6).collect();
        let mut own = named("cluster-subnets", &pods);
        own.extend(named("service-cidrs", &settings.services));
        own.extend(named(if v6 { "v6-join-subnet" } else { "v4-join-subnet" }, &settings.join));
        own.extend(named(if v6 { "v6-masquerade-subnet" } else { "v4-masquerade-subnet" }, &settings.masquerade));
        own
    }

    fn find_boundaries(&self) -> Boundaries {
        let given = self.given;
        let mut found = Boundaries::default();
        found.prefixes.extend(self.policies.blocks());
        found.prefixes.extend(self.network.borrow().prefixes());
        found.singles.extend(self.holders.addresses());
        for v6 in [false, true] {
            found.prefixes.extend(self.own_networks(v6).into_iter().map(|(_, own)| own));
            let special = [Masquerade::Host, Masquerade::HostLocal, Masquerade::NextHop, Masquerade::Hairpin];
            found.singles.extend(special.into_iter().filter_map(|what| given.settings.masquerade_address(what, v6)));
        }
        for spec in given.store.services().filter_map(|service| service.spec.as_deref()) {
            found.prefixes.extend(spec.source_ranges.iter().copied());
            let addresses = [&spec.cluster_ips, &spec.external_ips, &spec.ingress_ips];
            found.singles.extend(addresses.into_iter().flatten().copied());
        }
        // What a selector of nodes has, whether or not we know a way to it.
        for addresses in given.store.nodes().filter_map(|node| node.host_addresses.valid()) {
            found.singles.extend(addresses.iter().copied());
        }
        found
    }
}

/// What makes addresses alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Alike {
    /// Somebody has it.
    Single(IpAddr),
    /// Nobody has them, and this is the smallest prefix around them.
    Within(Option<Prefix>),
}

impl Boundaries {
    /// Cuts a network into its parts, without those of other networks.
    fn cut(&self, network: Prefix, left_out: &[Prefix]) -> Vec<Part> {
        let singles: BTreeSet<IpAddr> = self.singles.range(network.network()..=network.last()).copied().collect();
        // In this order a prefix comes behind those that contain it.
        let mut prefixes: Vec<Prefix> =
            self.prefixes.iter().copied().filter(|prefix| network.contains_prefix(*prefix)).collect();
        prefixes.sort_unstable_by_key(|prefix| (prefix.network(), prefix.length()));
        let mut starts: BTreeSet<IpAddr> = BTreeSet::from([network.network()]);
        starts.extend(prefixes.iter().map(|prefix| prefix.network()).chain(singles.iter().copied()));
        let ends = prefixes.iter().map(|prefix| prefix.last()).chain(singles.iter().copied());
        starts.extend(ends.filter_map(after).filter(|next| network.contains(*next)));
        let mut prefixes = prefixes.into_iter().peekable();
        let mut around: Vec<Prefix> = Vec::new();
        let mut places: BTreeMap<Alike, usize> = BTreeMap::new();
        let mut parts: Vec<Vec<(IpAddr, IpAddr)>> = Vec::new();
        let mut next = starts.iter().skip(1).copied();
        for first in starts.iter().copied() {
            let last = next.next().and_then(before).unwrap_or(network.last());
            while around.last().is_some_and(|prefix| !prefix.contains(first)) {
                around.pop();
            }
            while let Some(prefix) = prefixes.next_if(|prefix| prefix.network() == first) {
                around.push(prefix);
            }
            if left_out.iter().any(|own| own.contains(first)) {
                continue;
            }
            let alike = match singles.contains(&first) {
                true => Alike::Single(first),
                false => Alike::Within(around.last().copied()),
            };
            let place = *places.entry(alike).or_insert(parts.len());
            match parts.get_mut(place) {
                Some(ranges) => ranges.push((first, last)),
                None => parts.push(vec![(first, last)]),
            }
        }
        let part = |(place, list): (usize, Vec<(IpAddr, IpAddr)>)| {
            let address = list.first()?.0;
            let single = Prefix::new(address, if address.is_ipv6() { 128 } else { 32 }).ok()?;
            let ranges = Some(Rc::new(Ranges { number: place + 1, list }));
            Some(Part { party: Party::Network(single), ranges })
        };
        parts.into_iter().enumerate().filter_map(part).collect()
    }
}

fn after(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address).checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(address) => u128::from(address).checked_add(1).map(|next| IpAddr::V6(next.into())),
    }
}

fn before(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address).checked_sub(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(address) => u128::from(address).checked_sub(1).map(|next| IpAddr::V6(next.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(network: &str, prefixes: &[&str], singles: &[&str], left_out: &[&str]) -> Vec<String> {
        let parse = |all: &[&str]| all.iter().map(|text| text.parse().unwrap()).collect::<Vec<Prefix>>();
        let boundaries = Boundaries {
            prefixes: parse(prefixes).into_iter().collect(),
            singles: singles.iter().map(|text| text.parse().unwrap()).collect(),
        };
        let parts = boundaries.cut(network.parse().unwrap(), &parse(left_out));
        parts.iter().map(|part| Ranges::shown(part.ranges.as_deref().into_iter())).collect()
    }

    #[test]
    fn a_part_is_what_the_same_prefix_is_around() {
        let prefixes = ["192.0.2.64/26", "192.0.2.64/27", "192.0.2.0/24", "198.51.100.0/24"];
        let parts =
            ["192.0.2.0-192.0.2.63, 192.0.2.128-192.0.2.255", "192.0.2.64, 192.0.2.66-192.0.2.95", "192.0.2.65"];
        let parts = [&parts[..], &["192.0.2.96-192.0.2.127"]].concat();
        assert_eq!(shown("192.0.2.0/24", &prefixes, &["192.0.2.65", "192.0.3.1"], &[]), parts);
        assert_eq!(
            shown("0.0.0.0/0", &["10.0.0.0/8"], &["10.1.0.1", "255.255.255.255"], &["10.0.0.0/8"]),
            ["0.0.0.0-9.255.255.255, 11.0.0.0-255.255.255.254", "255.255.255.255"]
        );
        assert_eq!(shown("::/0", &[], &["::"], &[]), ["::", "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]);
    }
}
