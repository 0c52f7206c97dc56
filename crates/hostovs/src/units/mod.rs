//! What the units of Open vSwitch need: decided from their states.
//!
//! A unit that is stopped is started, one that failed is reset and started, after a growing delay. Nothing is ever stopped or
//! disabled. A job in progress is left to systemd.

mod finding;
mod layout;
mod state;

use std::collections::BTreeMap;
use std::time::Duration;

use backoff::Backoff;

pub use finding::{Finding, Problem};
pub use layout::{CANDIDATES, Daemon, Layout, LayoutError};
pub use state::{Active, FileState, Load, UnitState};

/// Delays between attempts to start a unit. The first attempt has none.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// A unit that ran for this long works: the next failure is a first one.
const STABLE: Duration = Duration::from_secs(60);

/// What to ask of systemd.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Start the unit at boot.
    Enable(String),
    /// Forget its failure and its start limit.
    ResetFailed(String),
    /// Start it now.
    Start(String),
}

/// The state of all units at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// By unit name.
    pub units: BTreeMap<String, UnitState>,
    /// The host is shutting down: nothing may be started.
    pub stopping: bool,
}

/// What follows from an observation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// To be carried out in this order.
    pub actions: Vec<Action>,
    /// What is wrong; empty if all is well.
    pub findings: Vec<Finding>,
    /// Decide again at this time, also if nothing changes.
    pub wake: Option<Duration>,
}

/// Decides, and remembers when each unit was started. Times are of any monotonic clock.
#[derive(Debug, Default)]
pub struct Supervisor {
    attempts: BTreeMap<String, Attempts>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Attempts {
    count: u32,
    /// No start before this time.
    next: Duration,
    active_since: Option<Duration>,
}

impl Supervisor {
    /// Decides what the units need now.
    pub fn decide(&mut self, layout: &Layout, seen: &Observation, now: Duration) -> Decision {
        let mut decision = Decision::default();
        let missing = UnitState::not_found();
        let state = |unit: &str| seen.units.get(unit).unwrap_or(&missing);
        // The units require each other: a start beside a job of systemd would conflict with it, or undo it.
        let is_busy = layout.units().any(|unit| state(unit).active.is_changing());
        for unit in layout.units() {
            let daemons_run = Daemon::ALL.into_iter().all(|daemon| state(layout.unit(daemon)).is_active());
            let must_wait = is_busy || (unit == layout.umbrella() && !layout.is_daemon(unit) && !daemons_run);
            let held = if seen.stopping {
                Held::Shutdown
            } else if must_wait {
                Held::Waits
            } else {
                Held::No
            };
            self.decide_unit(layout, unit, state(unit), held, now, &mut decision);
        }
        if seen.stopping {
            decision.findings.push(Finding::new("", Problem::Shutdown));
        }
        decision
    }

    fn decide_unit(
        &mut self,
        layout: &Layout,
        unit: &str,
        state: &UnitState,
        held: Held,
        now: Duration,
        decision: &mut Decision,
    ) {
        let attempts = self.attempts.entry(unit.to_owned()).or_default();
        if let Some(problem) = Problem::of_load(&state.load) {
            attempts.active_since = None;
            decision.findings.push(Finding::new(unit, problem));
            return;
        }
        if layout.is_enabled_for_boot(unit) && state.file.needs_enabling() && held != Held::Shutdown {
            decision.actions.push(Action::Enable(unit.to_owned()));
        }
        match state.active {
            Active::Active | Active::Reloading | Active::Refreshing => {
                let since = *attempts.active_since.get_or_insert(now);
                if now.saturating_sub(since) >= STABLE {
                    attempts.count = 0;
                } else if attempts.count > 0 {
                    decision.wake = earliest(decision.wake, since + STABLE);
                }
                return;
            }
            Active::Activating | Active::Deactivating | Active::Maintenance | Active::Other => {
                attempts.active_since = None;
                decision.findings.push(Finding::new(unit, Problem::Busy { state: state.summary() }));
                return;
            }
            Active::Inactive | Active::Failed => attempts.active_since = None,
        }
        let problem = |retry: Duration| {
            if state.result == "start-limit-hit" {
                Problem::StartLimit { retry }
            } else if state.active == Active::Failed {
                Problem::Failed { result: state.result.clone(), retry }
            } else {
                Problem::Stopped { retry }
            }
        };
        match held {
            Held::Shutdown => return,
            Held::Waits => {
                decision.findings.push(Finding::new(unit, Problem::Waits { result: state.result.clone() }));
                return;
            }
            Held::No => {}
        }
        if now < attempts.next {
            decision.wake = earliest(decision.wake, attempts.next);
            decision.findings.push(Finding::new(unit, problem(attempts.next.saturating_sub(now))));
            return;
        }
        if state.active == Active::Failed {
            decision.actions.push(Action::ResetFailed(unit.to_owned()));
        }
        decision.actions.push(Action::Start(unit.to_owned()));
        decision.findings.push(Finding::new(unit, problem(Duration::ZERO)));
        let delay = BACKOFF.delay(attempts.count, 1.0);
        attempts.count = attempts.count.saturating_add(1);
        attempts.next = now + delay;
        decision.wake = earliest(decision.wake, attempts.next);
    }
}

/// Why a unit may not be started now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    No,
    /// Others come first.
    Waits,
    Shutdown,
}

fn earliest(one: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(one.map_or(other, |one| one.min(other)))
}

#[cfg(test)]
mod tests;
