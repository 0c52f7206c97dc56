//! cases: one answer of many packets. Where they differ, on what it depends.

use std::collections::BTreeMap;

use super::{Answer, Case, Step, Verdict};
use crate::objects::Protocol;

/// What tells packets of one question apart, but for their ports: family, part of the source's network, the Service's
/// address, the node that they come to, part of the destination's network or endpoint.
pub(super) type Labels = [Option<String>; 5];

pub(super) const FAMILY: usize = 0;
pub(super) const SOURCE: usize = 1;
pub(super) const ADDRESS: usize = 2;
pub(super) const ENTRANCE: usize = 3;
pub(super) const TARGET: usize = 4;
/// The ports come behind them.
const DOOR: usize = 5;

/// Ports that no rule tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Door {
    pub(super) protocol: Protocol,
    pub(super) first: u16,
    pub(super) last: u16,
}

impl Door {
    pub(super) fn single(protocol: Protocol, port: u16) -> Self {
        Self { protocol, first: port, last: port }
    }

    /// All ports, cut where ranges begin and end.
    pub(super) fn all(protocol: Protocol, ranges: impl Iterator<Item = (u16, u16)>) -> Vec<Self> {
        let mut starts = vec![1];
        for (first, last) in ranges {
            starts.push(first.max(1));
            starts.extend(last.checked_add(1));
        }
        starts.sort_unstable();
        starts.dedup();
        let last = |place: usize| starts.get(place + 1).map_or(u16::MAX, |next: &u16| next - 1);
        starts.iter().enumerate().map(|(place, first)| Self { protocol, first: *first, last: last(place) }).collect()
    }
}

/// What was found of one packet.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) labels: Labels,
    pub(super) door: Door,
    pub(super) yes: bool,
    pub(super) chain: Vec<Step>,
}

/// Puts everything together.
pub(super) fn combine(found: &[Found]) -> Answer {
    let verdict = match (found.iter().any(|one| one.yes), found.iter().all(|one| one.yes)) {
        (true, true) => Verdict::Yes,
        (true, false) => Verdict::Some,
        (false, _) => Verdict::No,
    };
    if verdict != Verdict::Some {
        return Answer { verdict, chain: together(found.iter()), cases: Vec::new() };
    }
    let common = found.iter().map(|one| common(&found[0].chain, &one.chain)).min().unwrap_or(0);
    let mut groups: BTreeMap<(Vec<&str>, bool), Vec<&Found>> = BTreeMap::new();
    let dimensions = dimensions(found);
    for one in found {
        let labels = dimensions.iter().filter(|of| **of != DOOR).filter_map(|of| one.labels[*of].as_deref()).collect();
        groups.entry((labels, !one.yes)).or_default().push(one);
    }
    let with_doors = dimensions.contains(&DOOR);
    let cases = groups.into_iter().map(|((labels, no), group)| {
        let mut parts: Vec<String> = labels.iter().map(ToString::to_string).collect();
        if with_doors {
            parts.push(doors(group.iter().map(|one| one.door).collect()));
        }
        let mut chain = together(group.into_iter());
        chain.drain(..common.min(chain.len()));
        Case { what: parts.join(", "), yes: !no, chain }
    });
    Answer { verdict, cases: cases.collect(), chain: found[0].chain[..common].to_vec() }
}

/// How many steps two chains begin with alike.
fn common(one: &[Step], two: &[Step]) -> usize {
    one.iter().zip(two).take_while(|(one, two)| one == two).count()
}

/// All steps, each once.
fn together<'a>(found: impl Iterator<Item = &'a Found>) -> Vec<Step> {
    let mut chain: Vec<Step> = Vec::new();
    for step in found.flat_map(|one| &one.chain) {
        if !chain.contains(step) {
            chain.push(step.clone());
        }
    }
    chain
}

/// On what it depends: as few dimensions as say yes or no for sure.
fn dimensions(found: &[Found]) -> Vec<usize> {
    let label = |one: &Found, of: usize| match of {
        DOOR => format!("{:?}", one.door),
        of => one.labels[of].clone().unwrap_or_default(),
    };
    let decides = |chosen: &[usize]| {
        let mut known: BTreeMap<Vec<String>, bool> = BTreeMap::new();
        found.iter().all(|one| {
            let key = chosen.iter().map(|of| label(one, *of)).collect();
            *known.entry(key).or_insert(one.yes) == one.yes
        })
    };
    let mut chosen: Vec<usize> = (0..=DOOR).collect();
    // What one most likely wants to hear of goes last.
    for dimension in [FAMILY, ADDRESS, TARGET, ENTRANCE, SOURCE, DOOR] {
        let without: Vec<usize> = chosen.iter().copied().filter(|of| *of != dimension).collect();
        if decides(&without) {
            chosen = without;
        }
    }
    chosen
}

/// Ports, to be read: those that follow each other are one range.
fn doors(mut doors: Vec<Door>) -> String {
    doors.sort_unstable();
    let mut merged: Vec<Door> = Vec::new();
    for door in doors {
        match merged.last_mut() {
            Some(before) if before.protocol == door.protocol && door.first <= before.last.saturating_add(1) => {
                before.last = before.last.max(door.last);
            }
            _ => merged.push(door),
        }
    }
    let word = |door: &Door| match (door.first, door.last) {
        (1, u16::MAX) => format!("all of {}", door.protocol.word()),
        (first, last) if first == last => format!("{first}/{}", door.protocol.word()),
        (first, last) => format!("{first}-{last}/{}", door.protocol.word()),
    };
    format!("ports {}", merged.iter().map(word).collect::<Vec<_>>().join(", "))
}
