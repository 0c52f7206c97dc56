//! Whether pods can be connected on this node, and if not, why: the states of all parts of the agent.
//!
//! The same text is in `/readyz`, in the node condition and in CNI's STATUS; the runtime sees it by the presence of its
//! configuration file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use telemetry::{Condition, Health};
use tokio::sync::watch;

/// Ready, or why not, with the remedy.
pub(crate) type State = Result<(), String>;

/// Why a part is not ready, and whether it ever was: a part that fails is a warning, one that starts is not.
#[derive(Debug, Default)]
struct PartState {
    reason: Option<String>,
    was_ready: bool,
}

/// The states of all parts. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    health: Health,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// By name of the part.
    parts: Mutex<BTreeMap<&'static str, PartState>>,
    overall: watch::Sender<State>,
    /// Metric: 1 if ready, else 0.
    gauge: Gauge,
}

impl Readiness {
    pub(crate) fn new(health: &Health) -> Self {
        let shared = Shared { parts: Mutex::default(), overall: watch::Sender::new(Ok(())), gauge: Gauge::default() };
        Self { health: health.clone(), shared: Arc::new(shared) }
    }

    /// Adds a part, which is not ready until it says so.
    pub(crate) fn part(&self, name: &'static str) -> Part {
        let part = Part { name, condition: self.health.condition(name), shared: self.shared.clone() };
        part.not_ready("starting");
        part
    }

    pub(crate) fn gauge(&self) -> Gauge {
        self.shared.gauge.clone()
    }

    /// The overall state, as it changes.
    pub(crate) fn follow(&self) -> watch::Receiver<State> {
        self.shared.overall.subscribe()
    }
}

/// A part of the agent whose state counts.
#[derive(Debug)]
pub(crate) struct Part {
    name: &'static str,
    condition: Condition,
    shared: Arc<Shared>,
}

impl Part {
    pub(crate) fn ready(&self) {
        self.condition.ready();
        self.update(None);
    }

    /// `why` should name the remedy.
    pub(crate) fn not_ready(&self, why: impl Into<String>) {
        let why = why.into();
        self.condition.not_ready(why.clone());
        self.update(Some(why));
    }

    pub(crate) fn set(&self, state: &State) {
        match state {
            Ok(()) => self.ready(),
            Err(why) => self.not_ready(why.clone()),
        }
    }

    fn update(&self, reason: Option<String>) {
        let mut parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = parts.get(self.name);
        if before.is_some_and(|before| before.reason == reason) {
            return;
        }
        let was_ready = reason.is_none() || before.is_some_and(|before| before.was_ready);
        match &reason {
            // Every part is added as not ready; only what follows is news.
            Some(_) if before.is_none() => {}
            Some(error) if was_ready => {
                tracing::warn!(part = self.name, error, "readiness check failed; retrying");
            }
            Some(error) => tracing::info!(part = self.name, error, "readiness check not passed yet; retrying"),
            None => tracing::info!(part = self.name, "readiness check passed"),
        }
        parts.insert(self.name, PartState { reason, was_ready });
        let reasons: Vec<String> =
            parts.iter().filter_map(|(name, part)| Some(format!("{name}: {}", part.reason.as_ref()?))).collect();
        let state = if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) };
        drop(parts);
        self.shared.gauge.set(state.is_ok().into());
        self.shared.overall.send_if_modified(|before| {
            let changed = *before != state;
            *before = state;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_ready_if_all_parts_are_else_it_names_their_reasons() {
        let readiness = Readiness::new(&Health::default());
        let (one, two) = (readiness.part("open vswitch"), readiness.part("gateway"));
        let state = readiness.follow();
        assert_eq!(*state.borrow(), Err("gateway: starting; open vswitch: starting".into()));
        one.ready();
        two.not_ready("br-ex has no uplink");
        assert_eq!(*state.borrow(), Err("gateway: br-ex has no uplink".into()));
        assert_eq!(readiness.gauge().get(), 0);
        two.ready();
        assert_eq!((&*state.borrow(), readiness.gauge().get()), (&Ok(()), 1));
    }
}
