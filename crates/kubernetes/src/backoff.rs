//! How long to wait before the next try: longer each time, never the same for two clients, and short again after progress.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first wait.
pub(crate) const LEAST: Duration = Duration::from_millis(50);
/// The longest wait.
pub(crate) const MOST: Duration = Duration::from_secs(5);

/// Where a client stands between tries.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    random: RandomState,
    drawn: u64,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: LEAST, random: RandomState::new(), drawn: 0 }
    }

    /// There was progress: the next wait is short.
    pub(crate) fn reset(&mut self) {
        self.next = LEAST;
    }

    /// The next wait: between half and all of a time that doubles.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.next / 2;
        let wait = self.between(wait, self.next);
        self.next = (self.next * 2).min(MOST);
        wait
    }

    /// Some time between two.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        self.drawn += 1;
        // The top 32 bits of a keyed hash are as random as this needs.
        let share = f64::from(u32::try_from(self.random.hash_one(self.drawn) >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        least + most.saturating_sub(least).mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_within_bounds_and_shrink_after_progress() {
        let mut backoff = Backoff::new();
        for expected in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let wait = backoff.next();
            assert!(wait >= Duration::from_millis(expected / 2) && wait <= Duration::from_millis(expected), "{wait:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= LEAST);
    }

    #[test]
    fn a_time_between_two_is_between_them() {
        let mut backoff = Backoff::new();
        for _ in 0..1000 {
            let drawn = backoff.between(Duration::from_secs(290), Duration::from_secs(350));
            assert!((290..=350).contains(&drawn.as_secs()), "{drawn:?}");
        }
    }
}
