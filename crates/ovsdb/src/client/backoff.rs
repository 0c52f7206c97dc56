//! How long to wait before the next try: longer each time, never the same for two clients, and short again after progress.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The bounds of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub least: Duration,
    /// The longest wait.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { least: Duration::from_millis(100), most: Duration::from_secs(4) }
    }
}

/// Where a client stands between tries.
#[derive(Debug)]
pub(crate) struct Waits {
    bounds: Backoff,
    next: Duration,
    random: RandomState,
    drawn: u64,
}

impl Waits {
    pub(crate) fn new(bounds: Backoff) -> Self {
        Self { bounds, next: bounds.least, random: RandomState::new(), drawn: 0 }
    }

    /// There was progress: the next wait is short.
    pub(crate) fn reset(&mut self) {
        self.next = self.bounds.least;
    }

    /// The next wait: between half and all of a time that doubles.
    pub(crate) fn next(&mut self) -> Duration {
        self.drawn += 1;
        // The top 32 bits of a keyed hash are as random as this needs.
        let share = f64::from(u32::try_from(self.random.hash_one(self.drawn) >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let wait = self.next.mul_f64(0.5 + share / 2.0);
        self.next = (self.next * 2).min(self.bounds.most);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_within_bounds_and_shrink_after_progress() {
        let bounds = Backoff { least: Duration::from_millis(100), most: Duration::from_secs(1) };
        let mut waits = Waits::new(bounds);
        for expected in [100, 200, 400, 800, 1000, 1000] {
            let wait = waits.next();
            assert!(wait >= Duration::from_millis(expected / 2) && wait <= Duration::from_millis(expected), "{wait:?}");
        }
        waits.reset();
        assert!(waits.next() <= bounds.least);
    }
}
