//! Exponential backoff with jitter, for everything that retries. No clock, no sleep: the caller waits.
//!
//! ```
//! use std::time::Duration;
//! use backoff::{Backoff, Retries};
//!
//! const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(4));
//! assert_eq!(BACKOFF.delay(0, 1.0), Duration::from_millis(100));
//! assert_eq!(BACKOFF.delay(2, 0.0), Duration::from_millis(200));
//! assert_eq!(BACKOFF.delay(60, 1.0), Duration::from_secs(4));
//!
//! let mut retries = Retries::new(BACKOFF);
//! assert!(retries.next_delay() <= Duration::from_millis(100));
//! assert!(retries.next_delay() <= Duration::from_millis(200));
//! retries.reset(); // after a success
//! assert!(retries.next_delay() <= Duration::from_millis(100));
//! ```

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The bounds of a delay that doubles with each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the first delay.
    pub first: Duration,
    /// Upper bound of every delay.
    pub longest: Duration,
}

impl Backoff {
    /// `first` doubles with each attempt, up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The delay after failed attempt `attempt` (from 0). `jitter` from 0 to 1 selects a point between half of the
    /// doubled delay and all of it, so that clients that failed together do not retry together.
    pub fn delay(self, attempt: u32, jitter: f64) -> Duration {
        let factor = 2_u32.checked_pow(attempt).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(factor).min(self.longest);
        let drawn = full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        // Delays are logged: "retrying in 1.3s", not "in 1.284650871s".
        let step = if full >= Duration::from_secs(1) { 100 } else { 1 };
        let rounded = drawn.as_millis().next_multiple_of(step);
        u64::try_from(rounded).map_or(full, Duration::from_millis).min(full)
    }
}

/// Counts failed attempts, and returns the delay after each.
#[derive(Debug)]
pub struct Retries {
    backoff: Backoff,
    attempt: u32,
    /// None: always the full delay.
    jitter: Option<Jitter>,
}

impl Retries {
    /// With random jitter: for clients of a shared server.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, attempt: 0, jitter: Some(Jitter::new()) }
    }

    /// Full delays: for work that no other client competes for.
    pub fn without_jitter(backoff: Backoff) -> Self {
        Self { backoff, attempt: 0, jitter: None }
    }

    /// The delay before the next attempt; counts one failure.
    pub fn next_delay(&mut self) -> Duration {
        let jitter = self.jitter.as_mut().map_or(1.0, Jitter::fraction);
        let delay = self.backoff.delay(self.attempt, jitter);
        self.attempt = self.attempt.saturating_add(1);
        delay
    }

    /// An attempt succeeded: the next delay is the first one again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// Random fractions, seeded by the process; good enough to spread load, not for secrets.
#[derive(Debug, Default)]
pub struct Jitter {
    random: RandomState,
    drawn: u64,
}

impl Jitter {
    /// Two generators of one process draw different numbers.
    pub fn new() -> Self {
        Self::default()
    }

    /// From 0 to 1.
    pub fn fraction(&mut self) -> f64 {
        self.drawn += 1;
        // The top 32 bits of a keyed hash.
        f64::from(u32::try_from(self.random.hash_one(self.drawn) >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }

    /// A duration from `least` to `most`.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

    #[test]
    fn delays_double_up_to_the_longest_and_start_over_after_a_success() {
        let (mut jittered, mut full) = (Retries::new(BACKOFF), Retries::without_jitter(BACKOFF));
        for expected in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000].map(Duration::from_millis) {
            let delay = jittered.next_delay();
            assert!(delay >= expected / 2 && delay <= expected, "{delay:?}, not about {expected:?}");
            assert_eq!(full.next_delay(), expected);
            let step = if expected.as_secs() >= 1 { 100 } else { 1 };
            assert_eq!(delay.as_nanos() % (step * 1_000_000), 0, "{delay:?} is not rounded");
        }
        jittered.reset();
        full.reset();
        assert!(jittered.next_delay() <= BACKOFF.first);
        assert_eq!(full.next_delay(), BACKOFF.first);
    }

    #[test]
    fn any_attempt_and_any_jitter_stay_within_bounds() {
        for attempt in [0, 31, 32, u32::MAX] {
            for jitter in [-1.0, 0.0, 0.5, 1.0, 7.0] {
                let delay = BACKOFF.delay(attempt, jitter);
                assert!(delay >= BACKOFF.first / 2 && delay <= BACKOFF.longest, "{attempt} {jitter}: {delay:?}");
            }
        }
    }

    #[test]
    fn a_drawn_duration_is_between_its_bounds() {
        let mut jitter = Jitter::new();
        for _ in 0..1000 {
            let drawn = jitter.between(Duration::from_secs(290), Duration::from_secs(350));
            assert!((290..=350).contains(&drawn.as_secs()), "{drawn:?}");
        }
    }
}
