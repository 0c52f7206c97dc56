//! The result of a measurement: for each path the counts of control and fault windows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Prober;
use super::client::LOST_AFTER;
use super::packet_log::PacketRecord;
use super::plan::{PathSpec, Protocol};
use super::rounds::{Mark, Window, WindowKind};

/// An answer that takes longer is late. TCP retransmits a lost segment after 200 ms at the earliest, unless later ones
/// trigger it sooner; those are counted as retransmissions.
pub(crate) const LATE_AFTER: std::time::Duration = std::time::Duration::from_millis(150);

/// What went wrong with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incident {
    /// No answer within 5 s (`LOST_AFTER`).
    Lost,
    /// The connection was refused, reset or closed.
    Reset,
    /// An answer, but later than 150 ms (`LATE_AFTER`).
    Late,
    /// More than one answer.
    Duplicated,
    /// The reply came from another address, or the server saw a client address that the path does not allow.
    WrongSource,
}

impl Incident {
    /// All kinds, in the order of the table.
    pub const ALL: [Self; 5] = [Self::Lost, Self::Reset, Self::Late, Self::Duplicated, Self::WrongSource];

    /// As in the report, such as `lost`.
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

/// Packets of one kind of window, by what happened to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub sent: u64,
    pub lost: u64,
    pub late: u64,
    pub duplicated: u64,
    pub reset: u64,
    pub wrong_source: u64,
    /// The longest time to an answer.
    pub slowest_us: u64,
}

impl Counts {
    pub fn of(&self, incident: Incident) -> u64 {
        match incident {
            Incident::Lost => self.lost,
            Incident::Reset => self.reset,
            Incident::Late => self.late,
            Incident::Duplicated => self.duplicated,
            Incident::WrongSource => self.wrong_source,
        }
    }

    fn add(&mut self, packet: &PacketRecord) {
        self.sent += 1;
        for incident in incidents(packet) {
            *match incident {
                Incident::Lost => &mut self.lost,
                Incident::Reset => &mut self.reset,
                Incident::Late => &mut self.late,
                Incident::Duplicated => &mut self.duplicated,
                Incident::WrongSource => &mut self.wrong_source,
            } += 1;
        }
        if let Some(delay) = delay(packet) {
            self.slowest_us = self.slowest_us.max(delay);
        }
    }

    /// The sum of both.
    #[must_use]
    pub(crate) fn plus(&self, other: &Self) -> Self {
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

/// How long the answer took; `None` if it did not come in time.
fn delay(packet: &PacketRecord) -> Option<u64> {
    let delay = packet.answered?.saturating_sub(packet.sent);
    (u128::from(delay) <= LOST_AFTER.as_micros()).then_some(delay)
}

/// A packet without an answer is either lost or reset.
pub(super) fn incidents(packet: &PacketRecord) -> Vec<Incident> {
    let mut found = Vec::new();
    match delay(packet) {
        None if packet.reset => found.push(Incident::Reset),
        None => found.push(Incident::Lost),
        Some(_) if packet.reset => found.push(Incident::Reset),
        Some(delay) if u128::from(delay) > LATE_AFTER.as_micros() => found.push(Incident::Late),
        Some(_) => {}
    }
    found.extend((packet.answers > 1).then_some(Incident::Duplicated));
    found.extend(packet.wrong_source.map(|_| Incident::WrongSource));
    found
}

/// An incident of one packet inside a window.
#[derive(Debug, Clone, Serialize)]
pub struct PacketIncident {
    /// The packet's number on its path.
    pub number: u64,
    /// When it was sent, in microseconds since the prober started.
    pub at_us: u64,
    pub window: WindowKind,
    pub what: Incident,
    /// How long the answer took, if it came in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<u64>,
    /// The unexpected address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<std::net::IpAddr>,
    /// A reference path stalled at the same time: the host or its switches did.
    pub shared: bool,
}

/// What happened on one path, under control and fault.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// `pod → pod, other node`.
    pub route: String,
    pub protocol: Protocol,
    /// Whether it bypasses OVN: other paths are compared with it.
    pub reference: bool,
    /// The client's network.
    pub from: String,
    /// The server's address.
    pub to: String,
    /// Over all control windows.
    pub control: Counts,
    /// Over all fault windows.
    pub fault: Counts,
    /// Whether the fault cost not more than the control: packets of every kind, and late ones while the reference paths
    /// did not stall. Always true for a reference path: it bypasses OVN.
    pub ok: bool,
    /// Every incident of this path.
    #[serde(rename = "happenings")]
    pub incidents: Vec<PacketIncident>,
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

    /// Incidents in windows of one kind while no reference path stalled.
    pub(crate) fn unshared(&self, incident: Incident, window: WindowKind) -> u64 {
        let is_one = |one: &&PacketIncident| one.what == incident && one.window == window && !one.shared;
        self.incidents.iter().filter(is_one).count() as u64
    }
}

/// The result of a measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub title: String,
    /// Packets per second, over all paths.
    pub rate: u32,
    /// Whether no path had more incidents than its control, all paths recovered, and the measurement is usable.
    pub ok: bool,
    /// Why nothing can be concluded, if so: a control that loses packets by itself, or too few packets sent.
    pub unusable: Vec<String>,
    /// Whether there was a fault; otherwise the windows of both kinds are controls.
    pub has_fault: bool,
    /// In the order of measurement.
    pub windows: Vec<Window>,
    /// What the faults did and when.
    pub marks: Vec<Mark>,
    /// TCP segments retransmitted in the prober's own networks, in control and fault windows.
    pub retransmitted: BTreeMap<String, [u64; 2]>,
    /// Paths that did not answer at the end of a fault window and for a minute after it.
    pub unrecovered: Vec<String>,
    pub paths: Vec<PathReport>,
}

impl Report {
    pub(super) fn of(title: &str, prober: &Prober, windows: Vec<Window>, marks: Vec<Mark>, has_fault: bool) -> Self {
        let all: Vec<(&PathSpec, Vec<PacketRecord>)> = prober.paths().zip(prober.packets()).collect();
        let stalls =
            ReferenceStalls::of(all.iter().filter(|(spec, _)| spec.reference).flat_map(|(_, packets)| packets));
        let paths: Vec<PathReport> = all
            .iter()
            .map(|(spec, packets)| {
                let mut path = PathReport {
                    route: spec.route.clone(),
                    protocol: spec.protocol,
                    reference: spec.reference,
                    from: spec.from.name.clone(),
                    to: spec.to.to_string(),
                    control: Counts::default(),
                    fault: Counts::default(),
                    ok: true,
                    incidents: Vec::new(),
                };
                path.take(packets, &windows, &stalls);
                path
            })
            .collect();
        let mut retransmitted: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for window in &windows {
            for (network, count) in &window.retransmitted {
                retransmitted.entry(network.clone()).or_default()[usize::from(window.kind == WindowKind::Fault)] +=
                    count;
            }
        }
        let unrecovered: Vec<String> = windows.iter().flat_map(|window| window.unrecovered.iter().cloned()).collect();
        let lengths = [WindowKind::Control, WindowKind::Fault].map(|kind| seconds(&windows, kind));
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

    /// Incidents beyond the control, summed over the paths without the reference.
    pub fn excess(&self, incident: Incident) -> u64 {
        self.paths.iter().filter(|path| !path.reference).map(|path| path.excess(incident)).sum()
    }

    /// The total length of the windows of one kind.
    pub fn seconds(&self, kind: WindowKind) -> f64 {
        seconds(&self.windows, kind)
    }
}

fn seconds(windows: &[Window], kind: WindowKind) -> f64 {
    windows.iter().filter(|window| window.kind == kind).map(|window| window.length().as_secs_f64()).sum()
}

/// A control that loses more packets than this, and more than 1 %, cannot be compared with a fault.
const MAX_CONTROL_LOSS: u64 = 5;
/// The share of its packets that a path must have sent under the fault, relative to the control's rate.
const MIN_SENT_RATIO: f64 = 0.8;

impl PathReport {
    /// Why nothing can be concluded from this path, if so. `lengths`: seconds of control and fault windows.
    fn unusable(&self, lengths: [f64; 2]) -> Option<String> {
        let lost =
            self.unshared(Incident::Lost, WindowKind::Control) + self.unshared(Incident::Reset, WindowKind::Control);
        if lost > MAX_CONTROL_LOSS && lost * 100 > self.control.sent {
            let (name, sent) = (self.name(), self.control.sent);
            return Some(format!("{name}: {lost} of {sent} packets were lost or reset without the fault"));
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of packets are far below 2^52")]
        let [control, fault] = [self.control.sent as f64 / lengths[0], self.fault.sent as f64 / lengths[1]];
        let enough = control > 0.0 && fault >= control * MIN_SENT_RATIO;
        (!enough).then(|| {
            format!("{}: {fault:.1} packets per second were sent under the fault, {control:.1} without", self.name())
        })
    }

    fn take(&mut self, packets: &[PacketRecord], windows: &[Window], stalls: &ReferenceStalls) {
        for (number, packet) in (0..).zip(packets) {
            let Some(window) = windows.iter().find(|window| window.contains(packet.sent)) else { continue };
            let counts = match window.kind {
                WindowKind::Control => &mut self.control,
                WindowKind::Fault => &mut self.fault,
            };
            counts.add(packet);
            self.incidents.extend(incidents(packet).into_iter().map(|what| PacketIncident {
                number,
                at_us: packet.sent,
                window: window.kind,
                what,
                delay_us: delay(packet),
                source: packet.wrong_source.filter(|_| what == Incident::WrongSource),
                shared: stalls.is_near(packet.sent, self.protocol),
            }));
        }
        let [fault, control] = [WindowKind::Fault, WindowKind::Control].map(|kind| self.unshared(Incident::Late, kind));
        let mut others = Incident::ALL.iter().filter(|incident| **incident != Incident::Late);
        self.ok = self.reference || fault <= control && others.all(|incident| self.excess(*incident) == 0);
    }
}

/// An answer of a reference path that takes longer shows that the host or its switches stalled.
const STALL_US: u64 = 50_000;
/// Datagrams lost this shortly before or after a stall are attributed to it.
const NEAR_US: u64 = 500_000;
/// TCP backs off exponentially, so a stall affects it longer.
const NEAR_TCP_US: u64 = 6_000_000;

/// When reference paths stalled, sorted.
struct ReferenceStalls(Vec<u64>);

impl ReferenceStalls {
    fn of<'a>(packets: impl Iterator<Item = &'a PacketRecord>) -> Self {
        let stalls = |packet: &&PacketRecord| delay(packet).is_none_or(|delay| delay > STALL_US);
        let mut times: Vec<u64> = packets.filter(stalls).map(|packet| packet.sent).collect();
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

    fn packet(answered: Option<u64>) -> PacketRecord {
        PacketRecord {
            sent: 1000,
            answered: answered.map(|delay| 1000 + delay),
            answers: u32::from(answered.is_some()),
            ..PacketRecord::default()
        }
    }

    #[test]
    fn packets_are_classified() {
        assert_eq!(incidents(&packet(Some(500))), []);
        assert_eq!(incidents(&packet(None)), [Incident::Lost]);
        assert_eq!(incidents(&packet(Some(200_000))), [Incident::Late]);
        assert_eq!(incidents(&packet(Some(6_000_000))), [Incident::Lost], "an answer after the limit does not count");
        assert_eq!(incidents(&PacketRecord { reset: true, ..packet(None) }), [Incident::Reset]);
        assert_eq!(incidents(&PacketRecord { answers: 2, ..packet(Some(500)) }), [Incident::Duplicated]);
        let wrong = PacketRecord { wrong_source: Some([10, 0, 0, 1].into()), ..packet(Some(500)) };
        assert_eq!(incidents(&wrong), [Incident::WrongSource]);
    }

    #[test]
    fn a_path_fails_if_the_fault_costs_more_than_the_control() {
        let window = |kind, begin_us, end_us| Window { kind, begin_us, end_us, ..Window::default() };
        let windows = [window(WindowKind::Control, 0, 10_000), window(WindowKind::Fault, 20_000, 30_000)];
        let at = |sent: u64, answers: u32| PacketRecord {
            sent,
            answers,
            answered: (answers > 0).then_some(sent),
            ..PacketRecord::default()
        };
        let judge = |packets: &[PacketRecord]| {
            let mut path = PathReport {
                route: "pod → pod".into(),
                protocol: Protocol::Udp,
                reference: false,
                from: "client".into(),
                to: "10.128.0.5:7007".into(),
                control: Counts::default(),
                fault: Counts::default(),
                ok: true,
                incidents: Vec::new(),
            };
            path.take(packets, &windows, &ReferenceStalls(vec![700_000]));
            path
        };
        let good = judge(&[at(5, 1), at(6, 0), at(15_000, 0), at(25_000, 0), at(26_000, 1)]);
        assert!(good.ok, "one was lost in each; the one between the windows does not count: {good:?}");
        assert_eq!((good.control.sent, good.fault.sent, good.incidents.len()), (2, 2, 2));
        let bad = judge(&[at(5, 1), at(6, 0), at(25_000, 0), at(26_000, 0)]);
        assert!(!bad.ok && bad.excess(Incident::Lost) == 1, "{bad:?}");
        assert_eq!(bad.unshared(Incident::Lost, WindowKind::Fault), 2, "the reference path stalled later: {bad:?}");
        let lengths = [0.01, 0.01];
        assert_eq!(good.unusable(lengths), None, "one lost packet does not spoil a control");
        let lossy: Vec<PacketRecord> =
            (0..20).map(|number| at(number, 0)).chain((0..20).map(|n| at(20_000 + n, 0))).collect();
        let useless = judge(&lossy);
        assert!(useless.ok, "as many were lost in the control");
        assert!(useless.unusable(lengths).unwrap().contains("20 of 20 packets"), "so nothing can be concluded");
        let stuck = judge(&[at(5, 1), at(6, 1), at(25_000, 1)]);
        assert!(stuck.unusable(lengths).unwrap().contains("sent under the fault"), "half of them were not sent");
        let mut reference = judge(&[]);
        reference.reference = true;
        reference.take(&[at(25_000, 0)], &windows, &ReferenceStalls(Vec::new()));
        assert!(reference.ok, "a reference path bypasses OVN");
        let twice = judge(&[at(5, 1), at(25_000, 2)]);
        assert!(!twice.ok && twice.excess(Incident::Duplicated) == 1, "{twice:?}");
    }

    #[test]
    fn losses_near_a_stall_of_a_reference_path_are_shared() {
        let silent = PacketRecord { sent: 2_000_000, ..PacketRecord::default() };
        let slow = PacketRecord { sent: 9_000_000, answered: Some(9_060_000), answers: 1, ..PacketRecord::default() };
        let stalls = ReferenceStalls::of([&silent, &slow, &packet(Some(500))].into_iter());
        assert_eq!(stalls.0, [2_000_000, 9_000_000]);
        assert!(stalls.is_near(2_400_000, Protocol::Udp) && stalls.is_near(8_600_000, Protocol::Icmp));
        assert!(!stalls.is_near(3_000_000, Protocol::Udp));
        assert!(stalls.is_near(7_500_000, Protocol::TcpNew) && !stalls.is_near(16_000_000, Protocol::TcpEstablished));
    }
}
