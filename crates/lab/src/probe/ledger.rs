//! What became of every number of a path.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    /// When it was sent, in microseconds since the prober started.
    pub sent: u64,
    /// When it was answered first.
    pub answered: Option<u64>,
    /// How many answers came.
    pub answers: u32,
    /// An address that answered or was seen and should not have been.
    pub wrong_source: Option<IpAddr>,
    /// The connection was refused, reset or closed by the other end.
    pub reset: bool,
}

/// The numbers of one path, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<Vec<Entry>>,
}

impl Ledger {
    /// Notes that the next number is sent now, and returns it.
    pub(super) fn send(&self, now: u64) -> u64 {
        let mut entries = self.lock();
        entries.push(Entry { sent: now, ..Entry::default() });
        entries.len() as u64 - 1
    }

    /// Notes an answer; `wrong` is an address that should not be there.
    pub(super) fn answer(&self, number: u64, now: u64, wrong: Option<IpAddr>) {
        self.change(number, |entry| {
            entry.answered.get_or_insert(now);
            entry.answers += 1;
            entry.wrong_source = entry.wrong_source.or(wrong);
        });
    }

    /// Notes that the connection of a number ended.
    pub(super) fn reset(&self, number: u64) {
        self.change(number, |entry| entry.reset = true);
    }

    /// Notes that the connection ended that the newest number was sent on.
    pub(super) fn reset_newest(&self) {
        if let Some(entry) = self.lock().last_mut() {
            entry.reset = true;
        }
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.lock();
        if let Some(entry) = usize::try_from(number).ok().and_then(|number| entries.get_mut(number)) {
            change(entry);
        }
    }

    /// Whether the newest answer was sent at or after a moment.
    pub(super) fn answered_since(&self, since: u64) -> usize {
        self.lock()
            .iter()
            .rev()
            .take_while(|entry| entry.sent >= since)
            .filter(|entry| entry.answered.is_some())
            .count()
    }

    /// All of it, so far.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
