//! The state of the light chassis, shared by their thread with its callers.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

#[derive(Debug, Default)]
pub(super) struct ChassisStatus {
    /// Number of chassis that should be registered.
    pub(super) wanted: usize,
    /// How many of them have no rows yet.
    pub(super) missing: usize,
    /// Ports that are bound to one of them and up.
    pub(super) claimed: usize,
    /// Transactions sent so far.
    pub(super) transactions: u64,
    /// Consecutive rejected transactions.
    pub(super) refusals: u32,
    pub(super) last_error: Option<String>,
    /// Whether the thread has ended.
    pub(super) ended: bool,
}

impl ChassisStatus {
    /// An error with `what` and the last error.
    pub(super) fn failure(&self, what: &str) -> Error {
        let error = self.last_error.as_deref().unwrap_or("none");
        Error::Invalid(format!("{what}; last error: {error}"))
    }
}

#[derive(Debug, Default)]
pub(super) struct SharedStatus {
    status: Mutex<ChassisStatus>,
    pub(super) changed: Condvar,
}

impl SharedStatus {
    pub(super) fn lock(&self) -> MutexGuard<'_, ChassisStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut ChassisStatus)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}
