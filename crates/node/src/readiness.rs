//! Whether pods can be wired here, and if not, why: what each part of the agent says, together.
//!
//! The same words reach `/readyz`, the node's condition, CNI's STATUS and, by the presence of its file, the runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use telemetry::{Condition, Health};
use tokio::sync::watch;

/// Ready, or why not.
pub type State = Result<(), String>;

/// What the parts say together.
#[derive(Debug, Clone)]
pub struct Readiness {
    health: Health,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// By the name of the part; a reason if it is not ready.
    parts: Mutex<BTreeMap<&'static str, Option<String>>>,
    together: watch::Sender<State>,
    /// 1 if ready, as metrics have it.
    gauge: Gauge,
}

impl Readiness {
    /// With no parts yet.
    pub fn new(health: &Health) -> Self {
        let shared = Shared { parts: Mutex::default(), together: watch::Sender::new(Ok(())), gauge: Gauge::default() };
        Self { health: health.clone(), shared: Arc::new(shared) }
    }

    /// One more part, which is not ready yet.
    pub fn part(&self, name: &'static str) -> Part {
        let part = Part { name, condition: self.health.condition(name), shared: self.shared.clone() };
        part.not_ready("not begun yet");
        part
    }

    /// What they say together, for those who count.
    pub fn gauge(&self) -> Gauge {
        self.shared.gauge.clone()
    }

    /// What they say together, as it changes.
    pub fn follow(&self) -> watch::Receiver<State> {
        self.shared.together.subscribe()
    }
}

/// One part of the agent.
#[derive(Debug)]
pub struct Part {
    name: &'static str,
    condition: Condition,
    shared: Arc<Shared>,
}

impl Part {
    /// It works.
    pub fn ready(&self) {
        self.condition.ready();
        self.set(None);
    }

    /// It does not; why, with the remedy.
    pub fn not_ready(&self, why: impl Into<String>) {
        let why = why.into();
        self.condition.not_ready(why.clone());
        self.set(Some(why));
    }

    /// Either.
    pub fn say(&self, state: &State) {
        match state {
            Ok(()) => self.ready(),
            Err(why) => self.not_ready(why.clone()),
        }
    }

    fn set(&self, reason: Option<String>) {
        let mut parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.get(self.name) == Some(&reason) {
            return;
        }
        match &reason {
            Some(why) => tracing::info!(part = self.name, why, "not ready"),
            None => tracing::info!(part = self.name, "ready"),
        }
        parts.insert(self.name, reason);
        let reasons: Vec<String> =
            parts.iter().filter_map(|(name, reason)| Some(format!("{name}: {}", reason.as_ref()?))).collect();
        let state = if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) };
        drop(parts);
        self.shared.gauge.set(state.is_ok().into());
        self.shared.together.send_if_modified(|before| {
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
    fn all_parts_together_and_the_reasons_of_those_that_are_not_ready() {
        let readiness = Readiness::new(&Health::default());
        let (one, two) = (readiness.part("open vswitch"), readiness.part("gateway"));
        let state = readiness.follow();
        assert_eq!(*state.borrow(), Err("gateway: not begun yet; open vswitch: not begun yet".into()));
        one.ready();
        two.not_ready("br-ex has no uplink");
        assert_eq!(*state.borrow(), Err("gateway: br-ex has no uplink".into()));
        assert_eq!(readiness.gauge().get(), 0);
        two.ready();
        assert_eq!((&*state.borrow(), readiness.gauge().get()), (&Ok(()), 1));
    }
}
