//! Combines the outcomes of many packets; if they differ, finds what the result depends on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use objects::Protocol;

use super::ends::Side;
use super::networks::Ranges;
use super::{Case, Evaluation, Step, Verdict};

/// What distinguishes packets of one question, beside parts of networks and ports: family, address of the Service, the node
/// that they enter at, the endpoint.
pub(super) type Labels = [Option<String>; 4];

pub(super) const FAMILY: usize = 0;
pub(super) const ADDRESS: usize = 1;
pub(super) const ENTRY_NODE: usize = 2;
pub(super) const TARGET: usize = 3;
/// After the labels: the parts of networks, and the ports.
const SOURCE: usize = 4;
const DESTINATION: usize = 5;
const PORTS: usize = 6;
const DIMENSIONS: usize = 7;

/// Ports that no policy distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PortRange {
    pub(super) protocol: Protocol,
    pub(super) first: u16,
    pub(super) last: u16,
}

impl PortRange {
    pub(super) fn single(protocol: Protocol, port: u16) -> Self {
        Self { protocol, first: port, last: port }
    }

    /// All ports, split where `ranges` begin and end.
    pub(super) fn all(protocol: Protocol, ranges: impl Iterator<Item = (u16, u16)>) -> Vec<Self> {
        let mut starts = vec![1];
        for (first, last) in ranges {
            starts.push(first.max(1));
            starts.extend(last.checked_add(1));
        }
        starts.sort_unstable();
        starts.dedup();
        let last = |index: usize| starts.get(index + 1).map_or(u16::MAX, |next: &u16| next - 1);
        starts.iter().enumerate().map(|(index, first)| Self { protocol, first: *first, last: last(index) }).collect()
    }
}

/// The outcome of one kind of packet.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) labels: Labels,
    /// The part of the source's network, if the source is one.
    pub(super) from: Option<Rc<Ranges>>,
    /// The part of the destination's network.
    pub(super) to: Option<Rc<Ranges>>,
    pub(super) ports: PortRange,
    pub(super) yes: bool,
    pub(super) chain: Vec<Step>,
}

/// The object and field that decide.
type Decisive<'a> = (&'a str, &'a str);
/// Labels, the numbers of both sides' parts, and whether the packets do not arrive.
type GroupKey<'a> = (Vec<&'a str>, [usize; 2], bool);

impl Outcome {
    /// Object and field of the last step, without its text, which names addresses.
    fn decisive(&self) -> Decisive<'_> {
        self.chain.last().map(|step| (&*step.object, &*step.field)).unwrap_or_default()
    }

    fn parts(&self) -> (usize, usize) {
        let number = |part: &Option<Rc<Ranges>>| part.as_ref().map_or(0, |part| part.number);
        (number(&self.from), number(&self.to))
    }
}

/// The evaluation of all packets of a question.
pub(super) fn combine(outcomes: &[Outcome]) -> Evaluation {
    let verdict = match (outcomes.iter().any(|one| one.yes), outcomes.iter().all(|one| one.yes)) {
        (true, true) => Verdict::Yes,
        (true, false) => Verdict::Partial,
        (false, _) => Verdict::No,
    };
    if verdict != Verdict::Partial {
        return Evaluation { verdict, chain: merge_chains(outcomes.iter()), cases: Vec::new() };
    }
    let common = outcomes.iter().map(|one| common(&outcomes[0].chain, &one.chain)).min().unwrap_or(0);
    let cases = groups(outcomes).into_iter().map(|group| {
        let what = group.description();
        let mut chain = merge_chains(group.outcomes.into_iter());
        chain.drain(..common.min(chain.len()));
        Case { what, yes: group.yes, chain }
    });
    Evaluation { verdict, cases: cases.collect(), chain: outcomes[0].chain[..common].to_vec() }
}

/// The length of the common beginning of two chains.
fn common(one: &[Step], two: &[Step]) -> usize {
    one.iter().zip(two).take_while(|(one, two)| one == two).count()
}

/// All steps, each once. Of parts of a network that the same field decides, only the first is shown.
fn merge_chains<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Vec<Step> {
    let mut shown: HashMap<(bool, Decisive<'_>), (usize, usize)> = HashMap::new();
    let mut known: HashSet<&Step> = HashSet::new();
    let mut chain: Vec<Step> = Vec::new();
    let mut left_out: HashSet<&Step> = HashSet::new();
    for one in outcomes {
        if *shown.entry((one.yes, one.decisive())).or_insert(one.parts()) == one.parts() {
            chain.extend(one.chain.iter().filter(|step| known.insert(*step)).cloned());
        } else {
            left_out.extend(one.chain.last());
        }
    }
    let others: HashSet<Decisive<'_>> = left_out.difference(&known).map(|step| (&*step.object, &*step.field)).collect();
    for step in &mut chain {
        if others.contains(&(&*step.object, &*step.field)) {
            step.says.push_str("; likewise for other addresses");
        }
    }
    chain
}

/// The packets of one case.
struct Group<'a> {
    labels: Vec<&'a str>,
    from: Vec<&'a Rc<Ranges>>,
    to: Vec<&'a Rc<Ranges>>,
    /// Only if the result depends on ports.
    ports: Option<String>,
    yes: bool,
    /// Deciding fields of all its packets.
    decisive: BTreeSet<Decisive<'a>>,
    outcomes: Vec<&'a Outcome>,
}

impl Group<'_> {
    fn description(&self) -> String {
        let ranges = |word: &str, parts: &[&Rc<Ranges>]| {
            (!parts.is_empty()).then(|| format!("{word} {}", Ranges::shown(parts.iter().map(|part| &***part))))
        };
        let labels = self.labels.iter().map(|label| (*label).to_owned());
        let parts = ranges("from", &self.from).into_iter().chain(ranges("to", &self.to));
        parts.chain(labels).chain(self.ports.clone()).collect::<Vec<_>>().join(", ")
    }
}

/// As few groups as have one result each. Parts of networks are in one group if the same field decides them.
fn groups(outcomes: &[Outcome]) -> Vec<Group<'_>> {
    let chosen = dimensions(outcomes);
    let mut grouped: BTreeMap<GroupKey<'_>, Vec<&Outcome>> = BTreeMap::new();
    for one in outcomes {
        let labels = (FAMILY..=TARGET).filter(|of| chosen[*of]).filter_map(|of| one.labels[of].as_deref()).collect();
        let (from, to) = one.parts();
        let parts = [if chosen[SOURCE] { from } else { 0 }, if chosen[DESTINATION] { to } else { 0 }];
        grouped.entry((labels, parts, !one.yes)).or_default().push(one);
    }
    let groups = grouped.into_iter().map(|((labels, _, no), outcomes)| Group {
        labels,
        from: outcomes[0].from.iter().filter(|_| chosen[SOURCE]).collect(),
        to: outcomes[0].to.iter().filter(|_| chosen[DESTINATION]).collect(),
        ports: chosen[PORTS].then(|| describe_ports(outcomes.iter().map(|one| one.ports).collect())),
        yes: !no,
        decisive: outcomes.iter().map(|one| one.decisive()).collect(),
        outcomes,
    });
    merge(merge(groups, Side::Destination), Side::Source)
}

/// Joins groups that differ only in the parts of one side's network.
fn merge<'a>(groups: impl IntoIterator<Item = Group<'a>>, over: Side) -> Vec<Group<'a>> {
    let mut indexes = HashMap::new();
    let mut merged: Vec<Group<'a>> = Vec::new();
    for mut group in groups {
        let other = match over {
            Side::Source => &group.to,
            Side::Destination => &group.from,
        };
        let other: Vec<usize> = other.iter().map(|part| part.number).collect();
        let key = (other, group.labels.clone(), group.ports.clone(), group.yes, group.decisive.clone());
        match indexes.get(&key) {
            Some(index) => {
                let known: &mut Group<'a> = &mut merged[*index];
                match over {
                    Side::Source => known.from.append(&mut group.from),
                    Side::Destination => known.to.append(&mut group.to),
                }
                known.outcomes.append(&mut group.outcomes);
            }
            None => {
                indexes.insert(key, merged.len());
                merged.push(group);
            }
        }
    }
    merged
}

/// The fewest dimensions that determine the result.
fn dimensions(outcomes: &[Outcome]) -> [bool; DIMENSIONS] {
    let mut ranges: HashMap<PortRange, usize> = HashMap::new();
    let mut texts: HashMap<&str, usize> = HashMap::new();
    let keys: Vec<[usize; DIMENSIONS]> = outcomes
        .iter()
        .map(|one| {
            let mut key = [0; DIMENSIONS];
            for (of, label) in one.labels.iter().enumerate() {
                let next = texts.len() + 1;
                key[of] = label.as_deref().map_or(0, |label| *texts.entry(label).or_insert(next));
            }
            (key[SOURCE], key[DESTINATION]) = one.parts();
            let next = ranges.len();
            key[PORTS] = *ranges.entry(one.ports).or_insert(next);
            key
        })
        .collect();
    let decides = |chosen: &[bool; DIMENSIONS]| {
        let mut known: HashMap<[usize; DIMENSIONS], bool> = HashMap::new();
        outcomes.iter().zip(&keys).all(|(one, key)| {
            let mut key = *key;
            key.iter_mut().zip(chosen).filter(|(_, chosen)| !**chosen).for_each(|(id, _)| *id = 0);
            *known.entry(key).or_insert(one.yes) == one.yes
        })
    };
    let mut chosen = [true; DIMENSIONS];
    // The most interesting dimensions are dropped last.
    for dimension in [FAMILY, ADDRESS, TARGET, ENTRY_NODE, DESTINATION, SOURCE, PORTS] {
        chosen[dimension] = false;
        chosen[dimension] = !decides(&chosen);
    }
    chosen
}

/// Ports as text; adjacent ranges are merged.
fn describe_ports(mut ranges: Vec<PortRange>) -> String {
    ranges.sort_unstable();
    let mut merged: Vec<PortRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(before) if before.protocol == range.protocol && range.first <= before.last.saturating_add(1) => {
                before.last = before.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    let word = |range: &PortRange| match (range.first, range.last) {
        (1, u16::MAX) => format!("all of {}", range.protocol.ovn_name()),
        (first, last) if first == last => format!("{first}/{}", range.protocol.ovn_name()),
        (first, last) => format!("{first}-{last}/{}", range.protocol.ovn_name()),
    };
    format!("ports {}", merged.iter().map(word).collect::<Vec<_>>().join(", "))
}
