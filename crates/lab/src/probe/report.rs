//! What a measurement found: for each path the counts of control and fault windows, side by side.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Prober;
use super::client::LOST_AFTER;
use super::ledger::Entry;
use super::plan::{PathSpec, Protocol};
use super::rounds::{Kind, Mark, Window};

/// An answer that takes longer is late. TCP sends a lost segment again after 200 ms at the earliest, unless later ones tell
/// it sooner; those are counted as retransmissions.
pub const LATE_AFTER: std::time::Duration = std::time::Duration::from_millis(150);

/// What went wrong with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incident {
    /// No answer within [`LOST_AFTER`].
    Lost,
    /// The connection was refused, reset or closed.
    Reset,
    /// An answer, but later than [`LATE_AFTER`].
    Late,
    /// More than one answer.
    Duplicated,
    /// The answer came from another address, or the server saw another client address than the path promises.
    WrongSource,
}

impl Incident {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Lost, Self::Reset, Self::Late, Self::Duplicated, Self::WrongSource];

    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Reset => "reset",
            Self::Late => "late",
            Self::Duplicated => "duplicated",
            Self::WrongSource => "wrong source",
        }
    }
}

/// How many of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Numbers that were sent.
    pub sent: u64,
    /// [`Incident::Lost`].
    pub lost: u64,
    /// [`Incident::Late`].
    pub late: u64,
    /// [`Incident::Duplicated`].
    pub duplicated: u64,
    /// [`Incident::Reset`].
    pub reset: u64,
    /// [`Incident::WrongSource`].
    pub wrong_source: u64,
    /// The slowest answer, in microseconds.
    pub slowest_us: u64,
}

impl Counts {
    /// The count of one kind.
    pub fn of(&self, incident: Incident) -> u64 {
        match incident {
            Incident::Lost => self.lost,
            Incident::Reset => self.reset,
            Incident::Late => self.late,
            Incident::Duplicated => self.duplicated,
            Incident::WrongSource => self.wrong_source,
        }
    }

    fn add(&mut self, entry: &Entry) {
        self.sent += 1;
        for incident in incidents(entry) {
            *match incident {
                Incident::Lost => &mut self.lost,
                Incident::Reset => &mut self.reset,
                Incident::Late => &mut self.late,
                Incident::Duplicated => &mut self.duplicated,
                Incident::WrongSource => &mut self.wrong_source,
            } += 1;
        }
        if let Some(delay) = delay(entry) {
            self.slowest_us = self.slowest_us.max(delay);
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            late: self.late + other.late,
            duplicated: self.duplicated + other.duplicated,
            reset: self.reset + other.reset,
            wrong_source: self.wrong_source + other.wrong_source,
            slowest_us: self.slowest_us.max(other.slowest_us),
        }
    }
}

/// How long the answer took; none if it did not come in time.
fn delay(entry: &Entry) -> Option<u64> {
    let delay = entry.answered?.saturating_sub(entry.sent);
    (u128::from(delay) <= LOST_AFTER.as_micros()).then_some(delay)
}

/// What went wrong with a number. One that was not answered is lost or reset, never both.
pub(super) fn incidents(entry: &Entry) -> Vec<Incident> {
    let mut found = Vec::new();
    match delay(entry) {
        None if entry.reset => found.push(Incident::Reset),
        None => found.push(Incident::Lost),
        Some(_) if entry.reset => found.push(Incident::Reset),
        Some(delay) if u128::from(delay) > LATE_AFTER.as_micros() => found.push(Incident::Late),
        Some(_) => {}
    }
    found.extend((entry.answers > 1).then_some(Incident::Duplicated));
    found.extend(entry.wrong_source.map(|_| Incident::WrongSource));
    found
}

/// One number with which something went wrong, inside a window.
#[derive(Debug, Clone, Serialize)]
pub struct Happening {
    /// The number.
    pub number: u64,
    /// When it was sent, in microseconds since the prober started.
    pub at_us: u64,
    /// In which kind of window.
    pub window: Kind,
    /// What went wrong.
    pub what: Incident,
    /// How long the answer took, if one came in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<u64>,
    /// The address that should not be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<std::net::IpAddr>,
    /// A reference path had trouble at the same time: the machine or its switches stood still.
    pub shared: bool,
}

/// One path.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// Where it leads.
    pub route: String,
    /// How it was used.
    pub protocol: Protocol,
    /// Whether the others are held against it.
    pub reference: bool,
    /// From which network.
    pub from: String,
    /// To which address.
    pub to: String,
    /// In all control windows.
    pub control: Counts,
    /// In all fault windows.
    pub fault: Counts,
    /// Whether the fault cost not more than the control: packets in every respect, and late ones while the reference paths
    /// answered in time. Always so for a reference path: nothing of OVN is on it.
    pub ok: bool,
    /// Every number with which something went wrong.
    pub happenings: Vec<Happening>,
}

impl PathReport {
    /// Route and protocol.
    pub fn name(&self) -> String {
        format!("{}, {}", self.route, self.protocol.as_str())
    }

    /// By how much the fault exceeds the control.
    pub fn excess(&self, incident: Incident) -> u64 {
        self.fault.of(incident).saturating_sub(self.control.of(incident))
    }

    /// How many there were in a kind of window while the reference paths had no trouble.
    pub fn alone(&self, incident: Incident, window: Kind) -> u64 {
        let is_one = |one: &&Happening| one.what == incident && one.window == window && !one.shared;
        self.happenings.iter().filter(is_one).count() as u64
    }
}

/// A whole measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was measured.
    pub title: String,
    /// Packets per second in sum.
    pub rate: u32,
    /// Whether no path had more of anything than its control, all paths recovered, and the measurement is usable.
    pub ok: bool,
    /// Why nothing can be concluded, if so: a control that loses packets by itself, or packets that were not sent.
    pub unusable: Vec<String>,
    /// Whether there was a fault; else the windows of both kinds are controls.
    pub has_fault: bool,
    /// The windows, in order.
    pub windows: Vec<Window>,
    /// What the faults did and when.
    pub marks: Vec<Mark>,
    /// TCP segments sent again in the prober's own networks, in control and fault windows.
    pub retransmitted: BTreeMap<String, [u64; 2]>,
    /// Paths that gave no answer at the end of a fault window and for a while after it.
    pub unrecovered: Vec<String>,
    /// Path by path.
    pub paths: Vec<PathReport>,
}

impl Report {
    pub(super) fn of(title: &str, prober: &Prober, windows: Vec<Window>, marks: Vec<Mark>, has_fault: bool) -> Self {
        let all: Vec<(&PathSpec, Vec<Entry>)> = prober.paths().zip(prober.entries()).collect();
        let trouble = Trouble::of(all.iter().filter(|(spec, _)| spec.reference).flat_map(|(_, entries)| entries));
        let paths: Vec<PathReport> = all
            .iter()
            .map(|(spec, entries)| {
                let mut path = PathReport {
                    route: spec.route.clone(),
                    protocol: spec.protocol,
                    reference: spec.reference,
                    from: spec.from.name.clone(),
                    to: spec.to.to_string(),
                    control: Counts::default(),
                    fault: Counts::default(),
                    ok: true,
                    happenings: Vec::new(),
                };
                path.take(entries, &windows, &trouble);
                path
            })
            .collect();
        let mut retransmitted: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for window in &windows {
            for (network, count) in &window.retransmitted {
                retransmitted.entry(network.clone()).or_default()[usize::from(window.kind == Kind::Fault)] += count;
            }
        }
        let unrecovered: Vec<String> = windows.iter().flat_map(|window| window.unrecovered.iter().cloned()).collect();
        let lengths = [Kind::Control, Kind::Fault].map(|kind| seconds(&windows, kind));
        let unusable: Vec<String> = paths.iter().filter_map(|path| path.unusable(lengths)).collect();
        let ok = paths.iter().all(|path| path.ok) && unrecovered.is_empty() && unusable.is_empty();
        let (title, rate) = (title.to_owned(), prober.rate());
        Self { title, rate, ok, unusable, has_fault, windows, marks, retransmitted, unrecovered, paths }
    }

    /// Sums over all paths: control and fault.
    pub fn total(&self) -> [Counts; 2] {
        let sum = |counts: fn(&PathReport) -> &Counts| {
            self.paths.iter().fold(Counts::default(), |sum, path| sum.plus(counts(path)))
        };
        [sum(|path| &path.control), sum(|path| &path.fault)]
    }

    /// Packets of one kind beyond the control, summed over the paths, without the reference.
    pub fn excess(&self, incident: Incident) -> u64 {
        self.paths.iter().filter(|path| !path.reference).map(|path| path.excess(incident)).sum()
    }

    /// How long the windows of a kind lasted together.
    pub fn seconds(&self, kind: Kind) -> f64 {
        seconds(&self.windows, kind)
    }
}

fn seconds(windows: &[Window], kind: Kind) -> f64 {
    windows.iter().filter(|window| window.kind == kind).map(|window| window.length().as_secs_f64()).sum()
}

/// Packets that a control may lose by itself; above this and 1 % of a path, the result is unusable.
const CONTROL_MAY_LOSE: u64 = 5;
/// The share of its packets that a path must have sent under the fault, by the control's rate.
const MUST_BE_SENT: f64 = 0.8;

impl PathReport {
    /// Why nothing can be concluded from this path, if so. `lengths`: seconds of control and fault windows.
    fn unusable(&self, lengths: [f64; 2]) -> Option<String> {
        let lost = self.alone(Incident::Lost, Kind::Control) + self.alone(Incident::Reset, Kind::Control);
        if lost > CONTROL_MAY_LOSE && lost * 100 > self.control.sent {
            let (name, sent) = (self.name(), self.control.sent);
            return Some(format!("{name}: {lost} of {sent} packets were lost or reset without the fault"));
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of packets are far below 2^52")]
        let [control, fault] = [self.control.sent as f64 / lengths[0], self.fault.sent as f64 / lengths[1]];
        let enough = control > 0.0 && fault >= control * MUST_BE_SENT;
        (!enough).then(|| {
            format!("{}: {fault:.1} packets a second were sent under the fault, {control:.1} without", self.name())
        })
    }

    fn take(&mut self, entries: &[Entry], windows: &[Window], trouble: &Trouble) {
        for (number, entry) in (0..).zip(entries) {
            let Some(window) = windows.iter().find(|window| window.holds(entry.sent)) else { continue };
            let counts = match window.kind {
                Kind::Control => &mut self.control,
                Kind::Fault => &mut self.fault,
            };
            counts.add(entry);
            self.happenings.extend(incidents(entry).into_iter().map(|what| Happening {
                number,
                at_us: entry.sent,
                window: window.kind,
                what,
                delay_us: delay(entry),
                source: entry.wrong_source.filter(|_| what == Incident::WrongSource),
                shared: trouble.is_near(entry.sent, self.protocol),
            }));
        }
        let [fault, control] = [Kind::Fault, Kind::Control].map(|kind| self.alone(Incident::Late, kind));
        let mut others = Incident::ALL.iter().filter(|incident| **incident != Incident::Late);
        self.ok = self.reference || fault <= control && others.all(|incident| self.excess(*incident) == 0);
    }
}

/// An answer of a reference path that takes longer shows that the machine or its switches stood still.
const STALL_US: u64 = 50_000;
/// Datagrams that are lost so shortly before or after such a moment are lost to it.
const NEAR_US: u64 = 500_000;
/// TCP waits ever longer before it sends a lost segment again, so it suffers for longer.
const NEAR_TCP_US: u64 = 6_000_000;

/// When reference paths had trouble, in order.
struct Trouble(Vec<u64>);

impl Trouble {
    fn of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Self {
        let stalls = |entry: &&Entry| delay(entry).is_none_or(|delay| delay > STALL_US);
        let mut times: Vec<u64> = entries.filter(stalls).map(|entry| entry.sent).collect();
        times.sort_unstable();
        Self(times)
    }

    fn is_near(&self, at: u64, protocol: Protocol) -> bool {
        let near = match protocol {
            Protocol::TcpEstablished | Protocol::TcpNew => NEAR_TCP_US,
            Protocol::Udp | Protocol::Icmp => NEAR_US,
        };
        let first = self.0.partition_point(|time| *time < at.saturating_sub(near));
        self.0.get(first).is_some_and(|time| *time <= at + near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(answered: Option<u64>) -> Entry {
        Entry {
            sent: 1000,
            answered: answered.map(|delay| 1000 + delay),
            answers: u32::from(answered.is_some()),
            ..Entry::default()
        }
    }

    #[test]
    fn every_incident_is_told_from_the_others() {
        assert_eq!(incidents(&entry(Some(500))), []);
        assert_eq!(incidents(&entry(None)), [Incident::Lost]);
        assert_eq!(incidents(&entry(Some(200_000))), [Incident::Late]);
        assert_eq!(incidents(&entry(Some(6_000_000))), [Incident::Lost], "an answer after the limit is none");
        assert_eq!(incidents(&Entry { reset: true, ..entry(None) }), [Incident::Reset]);
        assert_eq!(incidents(&Entry { answers: 2, ..entry(Some(500)) }), [Incident::Duplicated]);
        let wrong = Entry { wrong_source: Some([10, 0, 0, 1].into()), ..entry(Some(500)) };
        assert_eq!(incidents(&wrong), [Incident::WrongSource]);
    }

    #[test]
    fn a_path_fails_if_the_fault_costs_more_than_the_control() {
        let window = |kind, begin_us, end_us| Window { kind, begin_us, end_us, ..Window::default() };
        let windows = [window(Kind::Control, 0, 10_000), window(Kind::Fault, 20_000, 30_000)];
        let at = |sent: u64, answers: u32| Entry {
            sent,
            answers,
            answered: (answers > 0).then_some(sent),
            ..Entry::default()
        };
        let judge = |entries: &[Entry]| {
            let mut path = PathReport {
                route: "pod → pod".into(),
                protocol: Protocol::Udp,
                reference: false,
                from: "client".into(),
                to: "10.128.0.5:7007".into(),
                control: Counts::default(),
                fault: Counts::default(),
                ok: true,
                happenings: Vec::new(),
            };
            path.take(entries, &windows, &Trouble(vec![700_000]));
            path
        };
        let good = judge(&[at(5, 1), at(6, 0), at(15_000, 0), at(25_000, 0), at(26_000, 1)]);
        assert!(good.ok, "one was lost in each; the one between the windows does not count: {good:?}");
        assert_eq!((good.control.sent, good.fault.sent, good.happenings.len()), (2, 2, 2));
        let bad = judge(&[at(5, 1), at(6, 0), at(25_000, 0), at(26_000, 0)]);
        assert!(!bad.ok && bad.excess(Incident::Lost) == 1, "{bad:?}");
        assert_eq!(bad.alone(Incident::Lost, Kind::Fault), 2, "the reference path's trouble was later: {bad:?}");
        let lengths = [0.01, 0.01];
        assert_eq!(good.unusable(lengths), None, "one lost packet does not spoil a control");
        let lossy: Vec<Entry> = (0..20).map(|number| at(number, 0)).chain((0..20).map(|n| at(20_000 + n, 0))).collect();
        let useless = judge(&lossy);
        assert!(useless.ok, "as many were lost in the control");
        assert!(useless.unusable(lengths).unwrap().contains("20 of 20 packets"), "so nothing can be concluded");
        let stuck = judge(&[at(5, 1), at(6, 1), at(25_000, 1)]);
        assert!(stuck.unusable(lengths).unwrap().contains("sent under the fault"), "half of them were not sent");
        let mut reference = judge(&[]);
        reference.reference = true;
        reference.take(&[at(25_000, 0)], &windows, &Trouble(Vec::new()));
        assert!(reference.ok, "nothing of OVN is on a reference path");
        let twice = judge(&[at(5, 1), at(25_000, 2)]);
        assert!(!twice.ok && twice.excess(Incident::Duplicated) == 1, "{twice:?}");
    }

    #[test]
    fn what_is_lost_beside_a_reference_path_is_shared() {
        let silent = Entry { sent: 2_000_000, ..Entry::default() };
        let slow = Entry { sent: 9_000_000, answered: Some(9_060_000), answers: 1, ..Entry::default() };
        let trouble = Trouble::of([&silent, &slow, &entry(Some(500))].into_iter());
        assert_eq!(trouble.0, [2_000_000, 9_000_000]);
        assert!(trouble.is_near(2_400_000, Protocol::Udp) && trouble.is_near(8_600_000, Protocol::Icmp));
        assert!(!trouble.is_near(3_000_000, Protocol::Udp));
        assert!(trouble.is_near(7_500_000, Protocol::TcpNew) && !trouble.is_near(16_000_000, Protocol::TcpEstablished));
    }
}
