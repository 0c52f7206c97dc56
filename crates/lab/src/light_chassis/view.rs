//! What the thread of the light chassis tells those who hold them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// How the light chassis stand.
#[derive(Debug, Default)]
pub(super) struct View {
    /// How many there shall be.
    pub(super) wanted: usize,
    /// How many of them lack their rows.
    pub(super) missing: usize,
    /// Ports that are bound to one of them and up.
    pub(super) claimed: usize,
    /// Transactions that were sent.
    pub(super) transactions: u64,
    /// How many of the last transactions in a row were refused.
    pub(super) refusals: u32,
    /// What went wrong last.
    pub(super) problem: Option<String>,
    /// Whether the thread is gone.
    pub(super) ended: bool,
}

impl View {
    /// An error that says what is not as it should be, and the last reason known.
    pub(super) fn failure(&self, what: &str) -> Error {
        let why = self.problem.as_deref().unwrap_or("none that is known of");
        Error::Invalid(format!("{what}; last problem: {why}"))
    }
}

/// The view, and the news that it has changed.
#[derive(Debug, Default)]
pub(super) struct Shared {
    view: Mutex<View>,
    pub(super) changed: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}
