//! The state of a database connection: logged when it changes, and shown by the health endpoints.

use ovsdb::client::Status;
use telemetry::Condition;

/// Logs the changes of one database connection and sets its health condition.
pub(crate) struct ConnectionState {
    name: &'static str,
    condition: Condition,
    /// The last logged state: connected, or the error.
    logged: Option<Result<(), String>>,
    was_connected: bool,
}

impl ConnectionState {
    pub(crate) fn new(name: &'static str, condition: Condition) -> Self {
        condition.not_ready("not connected yet");
        Self { name, condition, logged: None, was_connected: false }
    }

    /// Takes the client's status; true if it is connected.
    pub(crate) fn update(&mut self, status: &Status) -> bool {
        if status.connected {
            self.condition.ready();
            let logged = self.logged.replace(Ok(())) == Some(Ok(()));
            match (logged, std::mem::replace(&mut self.was_connected, true)) {
                (true, _) => {}
                (false, false) => tracing::info!(database = self.name, remote = status.remote, "database connected"),
                (false, true) => tracing::info!(database = self.name, remote = status.remote, "database reconnected"),
            }
            return true;
        }
        let error = status.last_error.clone().unwrap_or_else(|| "not connected yet".into());
        self.condition.not_ready(error.clone());
        // Until the first attempt has failed there is nothing to log.
        if status.last_error.is_some() && self.logged.as_ref() != Some(&Err(error.clone())) {
            tracing::warn!(database = self.name, error, "cannot connect to database; retrying");
            self.logged = Some(Err(error));
        }
        false
    }
}
