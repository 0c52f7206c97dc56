//! Splits a network into parts whose addresses all have the same outcome.
//!
//! A part ends wherever the outcome can change: at policies' blocks and Services' source ranges, at networks of the cluster
//! and of its routers, and at every address in use (pods, nodes and their management ports, Services, the masquerade
//! network). Prefixes are nested or disjoint, so unused addresses are equivalent if the smallest prefix around them is the
//! same. One of them is evaluated for all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use netmodel::{Family, Masquerade, Prefix};

use super::{Evaluator, Party, Step, is_single, step};

/// Address ranges with the same outcome.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Index among the parts of the network, from 1.
    pub(super) number: usize,
    list: Vec<(IpAddr, IpAddr)>,
}

impl Ranges {
    /// Several parts as text, merged and in order of addresses.
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

/// A party to evaluate, and the part of a network that it represents.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) party: Party,
    pub(super) ranges: Option<Rc<Ranges>>,
}

/// Where outcomes can change.
#[derive(Debug, Default)]
pub(super) struct Boundaries {
    prefixes: BTreeSet<Prefix>,
    singles: BTreeSet<IpAddr>,
}

impl Evaluator<'_> {
    /// The parts of a network, with steps on what is not included; another party as it is.
    pub(super) fn parts(&self, party: &Party) -> (Vec<Part>, Vec<Step>) {
        let Party::Network(network) = party else {
            return (vec![Part { party: party.clone(), ranges: None }], Vec::new());
        };
        if is_single(*network) {
            return (vec![Part { party: party.clone(), ranges: None }], Vec::new());
        }
        // A question about the Internet is not about the cluster's own networks, where most addresses are unused.
        let own = self.own_networks(network.family());
        let left_out: Vec<(&str, Prefix)> = match own.iter().any(|(_, own)| own.contains_prefix(*network)) {
            true => Vec::new(),
            false => own.into_iter().filter(|(_, own)| network.contains_prefix(*own)).collect(),
        };
        let boundaries = self.boundaries.get_or_init(|| self.find_boundaries());
        let parts = boundaries.split(*network, &left_out.iter().map(|(_, own)| *own).collect::<Vec<_>>());
        let steps = left_out.into_iter().map(|(field, own)| {
            let says = format!("{own} belongs to the cluster and is not included: ask about it separately");
            step(network.to_string(), field, says)
        });
        (parts, steps.collect())
    }

    /// The networks of the cluster, with the names of their settings.
    fn own_networks(&self, family: Family) -> Vec<(&'static str, Prefix)> {
        let settings = self.inputs.settings;
        let named = |field, networks: &[Prefix]| {
            let of_family = networks.iter().copied().filter(|network| network.family() == family);
            of_family.map(|network| (field, network)).collect::<Vec<_>>()
        };
        let pods: Vec<Prefix> = settings.cluster_of(family).collect();
        let mut own = named("cluster-subnets", &pods);
        own.extend(named("service-cidrs", &settings.services));
        let (join, masquerade) = match family {
            Family::V4 => ("v4-join-subnet", "v4-masquerade-subnet"),
            Family::V6 => ("v6-join-subnet", "v6-masquerade-subnet"),
        };
        own.extend(named(join, &settings.join));
        own.extend(named(masquerade, &settings.masquerade));
        own
    }

    fn find_boundaries(&self) -> Boundaries {
        let inputs = self.inputs;
        let mut found = Boundaries::default();
        found.prefixes.extend(self.policies.blocks());
        found.prefixes.extend(self.network.borrow().prefixes());
        found.singles.extend(self.addresses.addresses());
        for family in Family::BOTH {
            found.prefixes.extend(self.own_networks(family).into_iter().map(|(_, own)| own));
            let special = [Masquerade::Host, Masquerade::HostLocal, Masquerade::NextHop, Masquerade::Hairpin];
            found
                .singles
                .extend(special.into_iter().filter_map(|what| inputs.settings.masquerade_address(what, family)));
        }
        for spec in inputs.store.services().filter_map(|service| service.spec.as_deref()) {
            found.prefixes.extend(spec.source_ranges.iter().copied());
            let addresses = [&spec.cluster_ips, &spec.external_ips, &spec.ingress_ips];
            found.singles.extend(addresses.into_iter().flatten().copied());
        }
        // Node selectors of policies match these, with or without a route.
        for addresses in inputs.store.nodes().filter_map(|node| node.host_addresses.valid()) {
            found.singles.extend(addresses.iter().copied());
        }
        found
    }
}

/// What makes addresses equivalent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Equivalent {
    /// An address that an object has: evaluated alone.
    Single(IpAddr),
    /// Unused; the smallest prefix around them.
    Within(Option<Prefix>),
}

impl Boundaries {
    /// Splits a network, without the parts inside `left_out`.
    fn split(&self, network: Prefix, left_out: &[Prefix]) -> Vec<Part> {
        let singles: BTreeSet<IpAddr> = self.singles.range(network.network()..=network.last()).copied().collect();
        // A prefix comes after those that contain it.
        let mut prefixes: Vec<Prefix> =
            self.prefixes.iter().copied().filter(|prefix| network.contains_prefix(*prefix)).collect();
        prefixes.sort_unstable_by_key(|prefix| (prefix.network(), prefix.length()));
        let mut starts: BTreeSet<IpAddr> = BTreeSet::from([network.network()]);
        starts.extend(prefixes.iter().map(|prefix| prefix.network()).chain(singles.iter().copied()));
        let ends = prefixes.iter().map(|prefix| prefix.last()).chain(singles.iter().copied());
        starts.extend(ends.filter_map(after).filter(|next| network.contains(*next)));
        let mut prefixes = prefixes.into_iter().peekable();
        let mut around: Vec<Prefix> = Vec::new();
        let mut indexes: BTreeMap<Equivalent, usize> = BTreeMap::new();
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
            let equivalent = match singles.contains(&first) {
                true => Equivalent::Single(first),
                false => Equivalent::Within(around.last().copied()),
            };
            let index = *indexes.entry(equivalent).or_insert(parts.len());
            match parts.get_mut(index) {
                Some(ranges) => ranges.push((first, last)),
                None => parts.push(vec![(first, last)]),
            }
        }
        let part = |(index, list): (usize, Vec<(IpAddr, IpAddr)>)| {
            let address = list.first()?.0;
            let single = Prefix::new(address, Family::of(address).bits()).ok()?;
            let ranges = Some(Rc::new(Ranges { number: index + 1, list }));
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
        let parts = boundaries.split(network.parse().unwrap(), &parse(left_out));
        parts.iter().map(|part| Ranges::shown(part.ranges.as_deref().into_iter())).collect()
    }

    #[test]
    fn a_part_has_one_smallest_prefix_around_it() {
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
