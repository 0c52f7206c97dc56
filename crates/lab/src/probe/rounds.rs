//! Control and fault windows by turns.
//!
//! A fault window begins with the fault and lasts the agreed time, or as long as the fault takes and a while longer. What it
//! lasts longer than agreed is given to the control afterwards: both are of the same length in sum.

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

/// How long after a fault returned its window goes on at least: late effects are the fault's, not the next control's.
const AFTERMATH: Duration = Duration::from_secs(5);
/// How long paths may take to answer again after a fault window. Longer is a result: the report says so.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// How long paths may take to answer at all.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Shorter controls are not worth their while.
const SHORTEST: Duration = Duration::from_millis(500);

/// What a window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nothing is done.
    #[default]
    Control,
    /// Something is.
    Fault,
}

/// A stretch of time that counts.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Window {
    /// What it is for.
    pub kind: Kind,
    /// When it began, in microseconds since the prober started.
    pub begin_us: u64,
    /// When it ended.
    pub end_us: u64,
    /// TCP segments sent again meanwhile, by network.
    pub retransmitted: BTreeMap<String, u64>,
    /// Paths that did not answer for a minute after it.
    pub unrecovered: Vec<String>,
}

impl Window {
    pub(super) fn holds(&self, at: u64) -> bool {
        (self.begin_us..self.end_us).contains(&at)
    }

    /// How long it lasted.
    pub fn length(&self) -> Duration {
        Duration::from_micros(self.end_us - self.begin_us)
    }
}

/// Something that a fault did.
#[derive(Debug, Clone, Serialize)]
pub struct Mark {
    /// When, in microseconds since the prober started.
    pub at_us: u64,
    /// What.
    pub label: String,
}

/// Where a fault says what it does.
#[derive(Debug)]
pub struct Marks<'a> {
    prober: &'a Prober,
    /// The round, from 1.
    pub round: u32,
    marks: Mutex<Vec<Mark>>,
}

impl Marks<'_> {
    /// Notes that something is done now.
    pub fn mark(&self, label: impl Into<String>) {
        let mark = Mark { at_us: self.prober.now(), label: label.into() };
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
    }
}

/// How often and how long.
#[derive(Debug, Clone)]
pub struct Rounds {
    /// What is measured, for people.
    pub title: String,
    /// Control and fault windows, each.
    pub rounds: u32,
    /// The length of one.
    pub window: Duration,
}

/// Measures a fault: control, fault, control, fault … An error of the fault ends the measurement.
pub fn run(
    prober: &Prober,
    rounds: &Rounds,
    progress: &Progress,
    fault: impl FnMut(&Marks<'_>) -> Result<()>,
) -> Result<Report> {
    measure(prober, rounds, progress, Some(fault))
}

/// Measures what is lost without any fault: the windows of both kinds are controls.
pub fn run_without_fault(prober: &Prober, rounds: &Rounds, progress: &Progress) -> Result<Report> {
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
        windows.push(window(prober, Kind::Control, rounds.window, || Ok(()))?);
        note(second);
        let made = Marks { prober, round, marks: Mutex::default() };
        let mut under_fault = window(prober, Kind::Fault, rounds.window, || match &mut fault {
            Some(fault) => fault(&made),
            None => Ok(()),
        })?;
        marks.extend(made.marks.into_inner().unwrap_or_else(PoisonError::into_inner));
        under_fault.unrecovered = prober.await_answers(RECOVERY_LIMIT);
        let debt = under_fault.length().saturating_sub(rounds.window);
        windows.push(under_fault);
        if debt >= SHORTEST {
            note("control, as long as the fault took longer");
            windows.push(window(prober, Kind::Control, debt, || Ok(()))?);
        }
    }
    // What was sent at the end has its time, too.
    interrupt::sleep(LOST_AFTER)?;
    Ok(Report::of(&rounds.title, prober, windows, marks, fault.is_some()))
}

fn window(prober: &Prober, kind: Kind, length: Duration, work: impl FnOnce() -> Result<()>) -> Result<Window> {
    let before = prober.retransmitted()?;
    let (begin_us, begin) = (prober.now(), Instant::now());
    work()?;
    let rest = length.saturating_sub(begin.elapsed());
    interrupt::sleep(if kind == Kind::Fault { rest.max(AFTERMATH) } else { rest })?;
    let end_us = prober.now();
    let mut retransmitted = prober.retransmitted()?;
    for (network, count) in &mut retransmitted {
        *count -= before.get(network).copied().unwrap_or_default().min(*count);
    }
    Ok(Window { kind, begin_us, end_us, retransmitted, unrecovered: Vec::new() })
}

/// What a test requires: packets that are lost, reset, duplicated or from a wrong source. Lateness is for people to look at,
/// since whatever a fault starts takes processor time from everything else on this machine.
const REQUIRED: [Incident; 4] = [Incident::Lost, Incident::Reset, Incident::Duplicated, Incident::WrongSource];

/// Measures a fault for a test, which may run on a busy machine. Counts what happens while the reference paths have no trouble;
/// where that is more under the fault than in the control, it is measured once more, and counts if it is more again: chance
/// does not strike the same path twice, a fault does. Returns what came back, one line each, and the last report.
pub fn confirmed(
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
        return Err(Error::Invalid(format!("nothing can be concluded, twice: {problem}")));
    }
    let said = |again: Worse| {
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
    Ok((worse(&second).into_iter().filter_map(said).collect(), second))
}

/// More under the fault than in the control.
struct Worse {
    path: String,
    incident: Incident,
    fault: u64,
    control: u64,
}

fn worse(report: &Report) -> Vec<Worse> {
    let mut found = Vec::new();
    for path in report.paths.iter().filter(|path| !path.reference) {
        for incident in REQUIRED {
            let [fault, control] = [Kind::Fault, Kind::Control].map(|kind| path.alone(incident, kind));
            if fault > control {
                found.push(Worse { path: path.name(), incident, fault, control });
            }
        }
    }
    let silent = |path: &String| Worse { path: path.clone(), incident: Incident::Lost, fault: u64::MAX, control: 0 };
    found.extend(report.unrecovered.iter().map(silent));
    found
}
