//! A database as we stand with it: told once in the log when that changes, and by the health endpoints all the time.

use ovsdb::client::Status;
use telemetry::Condition;

/// How we stand with a database.
pub(crate) struct Link {
    name: &'static str,
    condition: Condition,
    /// What was told last: nothing is wrong, or why it is.
    told: Option<Option<String>>,
}

impl Link {
    pub(crate) fn new(name: &'static str, condition: Condition) -> Self {
        condition.not_ready("not connected yet");
        Self { name, condition, told: None }
    }

    /// Takes note of how the client stands; true if it is connected.
    pub(crate) fn look(&mut self, status: &Status) -> bool {
        if status.connected {
            self.condition.ready();
            match self.told.replace(None) {
                Some(None) => {}
                None => tracing::info!(database = self.name, remote = status.remote, "connected"),
                Some(Some(_)) => tracing::info!(database = self.name, remote = status.remote, "connected again"),
            }
            return true;
        }
        let why = status.last_error.clone().unwrap_or_else(|| "not connected yet".into());
        self.condition.not_ready(why.clone());
        // Before the first try has ended there is nothing to tell.
        if status.last_error.is_some() && self.told.as_ref() != Some(&Some(why.clone())) {
            tracing::warn!(database = self.name, why, "cannot be reached; trying again");
            self.told = Some(Some(why));
        }
        false
    }
}
