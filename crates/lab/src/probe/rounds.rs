//! Alternating control and fault windows.
//!
//! A fault window starts with the fault and lasts the given time, or as long as the fault takes plus a settle time. If
//! that is longer, another control window follows, so that both kinds have the same total length.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Prober;
use super::client::LOST_AFTER;
use super::report::{Incident, Report};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::progress::Progress;

/// The minimum length of a window after the fault returned: late effects belong to the fault, not to the next control.
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// How long paths may take to answer again after a fault window. Exceeding it is a result, not an error.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// How long paths may take to answer at the start.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Shorter control windows are skipped.
const MIN_CONTROL: Duration = Duration::from_millis(500);

/// Whether a fault is injected in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WindowKind {
    /// Without the fault.
    #[default]
    Control,
    /// The fault runs during the window.
    Fault,
}

/// A measured period.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Window {
    pub kind: WindowKind,
    /// In microseconds since the prober started.
    pub begin_us: u64,
    /// In microseconds since the prober started.
    pub end_us: u64,
    /// TCP segments retransmitted meanwhile, by network.
    pub retransmitted: BTreeMap<String, u64>,
    /// Paths that did not answer for a minute after it.
    pub unrecovered: Vec<String>,
}

impl Window {
    pub(super) fn contains(&self, at: u64) -> bool {
        (self.begin_us..self.end_us).contains(&at)
    }

    pub fn length(&self) -> Duration {
        Duration::from_micros(self.end_us - self.begin_us)
    }
}

/// An event on the timeline.
#[derive(Debug, Clone, Serialize)]
pub struct Mark {
    /// In microseconds since the prober started.
    pub at_us: u64,
    pub label: String,
}

/// Lets a fault mark on the timeline what it does.
#[derive(Debug)]
pub struct Marks<'a> {
    prober: &'a Prober,
    /// Counted from 1.
    pub round: u32,
    marks: Mutex<Vec<Mark>>,
}

impl Marks<'_> {
    /// Adds a mark at the current time.
    pub fn mark(&self, label: impl Into<String>) {
        let mark = Mark { at_us: self.prober.now(), label: label.into() };
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
    }
}

/// How often and how long to measure.
#[derive(Debug, Clone)]
pub struct Rounds {
    /// Headline of the report.
    pub title: String,
    /// Number of control windows and of fault windows.
    pub rounds: u32,
    /// The same for all windows.
    pub window: Duration,
}

/// Measures a fault: control, fault, control, fault … Stops at an error of the fault.
pub fn run(
    prober: &Prober,
    rounds: &Rounds,
    progress: &Progress,
    fault: impl FnMut(&Marks<'_>) -> Result<()>,
) -> Result<Report> {
    measure(prober, rounds, progress, Some(fault))
}

/// Observes the paths while `work` runs, without a control: for incidents that never happen by chance, such as established
/// connections that are reset.
pub fn observe(prober: &Prober, title: &str, work: impl FnOnce() -> Result<()>) -> Result<Report> {
    prober.await_ready(READY_LIMIT)?;
    let mut window = window(prober, WindowKind::Fault, Duration::ZERO, work)?;
    window.unrecovered = prober.await_answers(RECOVERY_LIMIT);
    interrupt::sleep(LOST_AFTER)?;
    Ok(Report::of(title, prober, vec![window], Vec::new(), true))
}

/// Measures losses without any fault: the windows of both kinds are controls.
pub(crate) fn run_without_fault(prober: &Prober, rounds: &Rounds, progress: &Progress) -> Result<Report> {
    measure(prober, rounds, progress, None::<fn(&Marks<'_>) -> Result<()>>)
}

fn measure(
    prober: &Prober,
    rounds: &Rounds,
    progress: &Progress,
    mut fault: Option<impl FnMut(&Marks<'_>) -> Result<()>>,
) -> Result<Report> {
    let second = if fault.is_some() { "fault" } else { "second control" };
    prober.await_ready(READY_LIMIT)?;
    let (mut windows, mut marks) = (Vec::new(), Vec::new());
    for round in 1..=rounds.rounds {
        let note = |what: &str| {
            progress.note(&rounds.title, format!("round {round} of {}: {what}", rounds.rounds));
        };
        note("control");
        windows.push(window(prober, WindowKind::Control, rounds.window, || Ok(()))?);
        note(second);
        let fault_marks = Marks { prober, round, marks: Mutex::default() };
        let mut under_fault = window(prober, WindowKind::Fault, rounds.window, || match &mut fault {
            Some(fault) => fault(&fault_marks),
            None => Ok(()),
        })?;
        marks.extend(fault_marks.marks.into_inner().unwrap_or_else(PoisonError::into_inner));
        under_fault.unrecovered = prober.await_answers(RECOVERY_LIMIT);
        let excess = under_fault.length().saturating_sub(rounds.window);
        windows.push(under_fault);
        if excess >= MIN_CONTROL {
            note("control, to match the longer fault window");
            windows.push(window(prober, WindowKind::Control, excess, || Ok(()))?);
        }
    }
    // The last packets may still be answered.
    interrupt::sleep(LOST_AFTER)?;
    Ok(Report::of(&rounds.title, prober, windows, marks, fault.is_some()))
}

fn window(prober: &Prober, kind: WindowKind, length: Duration, work: impl FnOnce() -> Result<()>) -> Result<Window> {
    let before = prober.retransmitted()?;
    let (begin_us, begin) = (prober.now(), Instant::now());
    work()?;
    let rest = length.saturating_sub(begin.elapsed());
    interrupt::sleep(if kind == WindowKind::Fault { rest.max(SETTLE_TIME) } else { rest })?;
    let end_us = prober.now();
    let mut retransmitted = prober.retransmitted()?;
    for (network, count) in &mut retransmitted {
        *count -= before.get(network).copied().unwrap_or_default().min(*count);
    }
    Ok(Window { kind, begin_us, end_us, retransmitted, unrecovered: Vec::new() })
}

/// The incidents that fail a test: lost, reset, duplicated or from a wrong source. Late packets are only reported,
/// since whatever a fault starts takes CPU time from everything else on this host.
const TESTED_INCIDENTS: [Incident; 4] = [Incident::Lost, Incident::Reset, Incident::Duplicated, Incident::WrongSource];

/// Measures a fault for a test, which may run on a busy host. Counts incidents while the reference paths do not stall;
/// paths with more of them under the fault than in the control are measured once more, and count if it happens again:
/// chance does not hit the same path twice, a fault does. Returns one line per confirmed path, and the last report.
pub fn run_confirmed(
    prober: &Prober,
    rounds: &Rounds,
    mut fault: impl FnMut(&Marks<'_>) -> Result<()>,
) -> Result<(Vec<String>, Report)> {
    let first = run(prober, rounds, &Progress::silent(), &mut fault)?;
    let suspects = worse(&first);
    if suspects.is_empty() && first.unusable.is_empty() {
        return Ok((Vec::new(), first));
    }
    let second = run(prober, rounds, &Progress::silent(), &mut fault)?;
    if let (Some(_), Some(problem)) = (first.unusable.first(), second.unusable.first()) {
        return Err(Error::Invalid(format!("nothing can be concluded, in two measurements: {problem}")));
    }
    let describe = |again: Worse| {
        let before = suspects.iter().find(|one| (&one.path, one.incident) == (&again.path, again.incident))?;
        Some(format!(
            "{}: {} {} and again {}; control {} and {}",
            again.path,
            again.incident.as_str(),
            before.fault,
            again.fault,
            before.control,
            again.control
        ))
    };
    Ok((worse(&second).into_iter().filter_map(describe).collect(), second))
}

struct Worse {
    path: String,
    incident: Incident,
    fault: u64,
    control: u64,
}

fn worse(report: &Report) -> Vec<Worse> {
    let mut found = Vec::new();
    for path in report.paths.iter().filter(|path| !path.reference) {
        for incident in TESTED_INCIDENTS {
            let [fault, control] = [WindowKind::Fault, WindowKind::Control].map(|kind| path.unshared(incident, kind));
            if fault > control {
                found.push(Worse { path: path.name(), incident, fault, control });
            }
        }
    }
    let silent = |path: &String| Worse { path: path.clone(), incident: Incident::Lost, fault: u64::MAX, control: 0 };
    found.extend(report.unrecovered.iter().map(silent));
    found
}
