//! Readiness and liveness of a role.
//!
//! *Ready*: every condition that the role declared is true. *Alive*: every heartbeat came within its
//! time. A heartbeat belongs to work that succeeds ("commits"), not to a state (a Lease), so that a role
//! that is stuck is detected.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

type Clock = dyn Fn() -> Instant + Send + Sync;

/// Conditions and heartbeats of a role; clones share them.
#[derive(Clone)]
pub struct Health {
    state: Arc<Mutex<State>>,
    clock: Arc<Clock>,
}

#[derive(Debug, Default)]
struct State {
    /// `Some(reason)` while the condition is false.
    conditions: BTreeMap<String, Option<String>>,
    heartbeats: BTreeMap<String, Pulse>,
    stopping: bool,
}

#[derive(Debug)]
struct Pulse {
    maximum_age: Duration,
    /// `None` while no beat is expected.
    last: Option<Instant>,
}

/// Body of `/readyz` and `/livez`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Whether every check passes.
    pub ok: bool,
    /// One per condition or heartbeat.
    pub checks: Vec<Check>,
}

/// One line of a [`Report`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the condition or heartbeat.
    pub name: String,
    /// Whether it passes.
    pub ok: bool,
    /// Why it fails, or details.
    pub reason: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let state = if check.ok { "ok" } else { "failed" };
            write!(f, "{}: {state}", check.name)?;
            if !check.reason.is_empty() {
                write!(f, ": {}", check.reason)?;
            }
            f.write_char('\n')?;
        }
        f.write_str(if self.ok { "ok\n" } else { "failed\n" })
    }
}

impl Report {
    fn of(checks: Vec<Check>) -> Self {
        Self { ok: checks.iter().all(|check| check.ok), checks }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::with_clock(Instant::now)
    }
}

impl Health {
    /// With another clock, for tests.
    pub fn with_clock(clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self { state: Arc::default(), clock: Arc::new(clock) }
    }

    /// Declares a condition of readiness, false until its handle sets it. The same name returns the same condition.
    pub fn condition(&self, name: impl Into<String>) -> Condition {
        let name = name.into();
        self.lock().conditions.entry(name.clone()).or_insert_with(|| Some("not reported yet".to_owned()));
        Condition { health: self.clone(), name }
    }

    /// Declares work that must succeed at least once per `maximum_age`, from now on.
    pub fn heartbeat(&self, name: impl Into<String>, maximum_age: Duration) -> Heartbeat {
        let name = name.into();
        let last = Some((self.clock)());
        self.lock().heartbeats.insert(name.clone(), Pulse { maximum_age, last });
        Heartbeat { health: self.clone(), name }
    }

    /// The role is shutting down: not ready from now on, whatever its conditions.
    pub(crate) fn set_stopping(&self) {
        self.lock().stopping = true;
    }

    /// The state of each condition.
    #[must_use]
    pub fn readiness(&self) -> Report {
        let state = self.lock();
        let mut checks: Vec<Check> = state
            .conditions
            .iter()
            .map(|(name, why_not)| Check {
                name: name.clone(),
                ok: why_not.is_none(),
                reason: why_not.clone().unwrap_or_default(),
            })
            .collect();
        if checks.is_empty() {
            // A probe may come before the first condition is declared.
            checks.push(failed("startup", "no condition declared yet"));
        }
        if state.stopping {
            checks.push(failed("shutdown", "stopping"));
        }
        Report::of(checks)
    }

    /// The state of each heartbeat.
    #[must_use]
    pub fn liveness(&self) -> Report {
        let now = (self.clock)();
        let state = self.lock();
        let checks = state.heartbeats.iter().map(|(name, pulse)| pulse.check(name, now));
        Report::of(checks.collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so a panicked thread cannot leave it inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Pulse {
    fn check(&self, name: &str, now: Instant) -> Check {
        let Some(last) = self.last else {
            return Check { name: name.to_owned(), ok: true, reason: "paused".to_owned() };
        };
        let age = now.saturating_duration_since(last);
        Check {
            name: name.to_owned(),
            ok: age <= self.maximum_age,
            reason: format!(
                "last success {:.1}s ago, at most {:.1}s allowed",
                age.as_secs_f64(),
                self.maximum_age.as_secs_f64()
            ),
        }
    }
}

fn failed(name: &str, reason: &str) -> Check {
    Check { name: name.to_owned(), ok: false, reason: reason.to_owned() }
}

/// Handle of a condition of readiness; clones share it.
#[derive(Debug, Clone)]
pub struct Condition {
    health: Health,
    name: String,
}

impl Condition {
    /// Sets the condition to true.
    pub fn ready(&self) {
        self.health.lock().conditions.insert(self.name.clone(), None);
    }

    /// Sets the condition to false; `/readyz` shows the reason.
    pub fn not_ready(&self, why: impl Into<String>) {
        self.health.lock().conditions.insert(self.name.clone(), Some(why.into()));
    }
}

/// Handle of a heartbeat; clones share it. Without beats, `/livez` fails.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    health: Health,
    name: String,
}

impl Heartbeat {
    /// The work succeeded.
    pub fn beat(&self) {
        let now = (self.health.clock)();
        self.set(Some(now));
    }

    /// Expects no beat until the next one: a standby has no work.
    pub fn pause(&self) {
        self.set(None);
    }

    fn set(&self, last: Option<Instant>) {
        if let Some(pulse) = self.health.lock().heartbeats.get_mut(&self.name) {
            pulse.last = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Health with a manual clock, in seconds.
    fn health_with_seconds() -> (Health, Arc<AtomicU64>) {
        let seconds = Arc::new(AtomicU64::new(0));
        let (start, read) = (Instant::now(), Arc::clone(&seconds));
        let health = Health::with_clock(move || start + Duration::from_secs(read.load(Ordering::Relaxed)));
        (health, seconds)
    }

    #[test]
    fn ready_only_if_every_condition_is_true() {
        let health = Health::default();
        assert!(!health.readiness().ok, "nothing is declared yet");
        let north = health.condition("northbound");
        let south = health.condition("southbound");
        north.ready();
        assert!(!health.readiness().ok);
        south.ready();
        assert!(health.readiness().ok);
        north.not_ready("connection lost");
        let report = health.readiness();
        assert_eq!(report.to_string(), "northbound: failed: connection lost\nsouthbound: ok\nfailed\n");
    }

    #[test]
    fn declaring_a_condition_again_keeps_its_state() {
        let health = Health::default();
        health.condition("northbound").ready();
        health.condition("northbound");
        assert!(health.readiness().ok);
    }

    #[test]
    fn shutdown_overrides_every_condition() {
        let health = Health::default();
        health.condition("northbound").ready();
        health.set_stopping();
        let report = health.readiness();
        assert!(!report.ok);
        assert_eq!(report.checks.last(), Some(&failed("shutdown", "stopping")));
    }

    #[test]
    fn a_heartbeat_becomes_stale_and_recovers() {
        let (health, seconds) = health_with_seconds();
        let commits = health.heartbeat("commits", Duration::from_secs(30));
        seconds.store(30, Ordering::Relaxed);
        assert!(health.liveness().ok);
        seconds.store(31, Ordering::Relaxed);
        let report = health.liveness();
        assert!(!report.ok);
        assert_eq!(report.checks, [failed("commits", "last success 31.0s ago, at most 30.0s allowed")]);
        commits.beat();
        assert!(health.liveness().ok);
    }

    #[test]
    fn a_paused_heartbeat_is_alive_until_it_beats_again() {
        let (health, seconds) = health_with_seconds();
        let commits = health.heartbeat("commits", Duration::from_secs(30));
        commits.pause();
        seconds.store(1000, Ordering::Relaxed);
        assert!(health.liveness().ok);
        commits.beat();
        seconds.store(1031, Ordering::Relaxed);
        assert!(!health.liveness().ok);
    }

    #[test]
    fn a_role_without_heartbeats_is_alive() {
        assert!(Health::default().liveness().ok);
    }
}
