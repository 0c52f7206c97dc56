//! Waiting for something that announces no event.

use std::time::{Duration, Instant};

/// First and longest delay. The longer something takes, the less a longer delay matters, and most attempts start a process
/// (`kubectl` takes a tenth of a second of CPU time), which would slow down what is waited for.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

/// Repeats an attempt until it returns a value, for at least `limit`; then returns the last failure.
pub fn poll<T, E>(limit: Duration, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let deadline = Instant::now() + limit;
    let mut delay = FIRST;
    loop {
        let result = attempt();
        if result.is_ok() || Instant::now() >= deadline {
            return result;
        }
        std::thread::sleep(delay);
        delay = (delay * 3 / 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_is_returned() {
        let mut attempts = 0;
        let mut attempt = || {
            attempts += 1;
            if attempts == 3 { Ok(attempts) } else { Err(attempts) }
        };
        assert_eq!(poll(Duration::from_secs(60), &mut attempt), Ok(3));
        assert_eq!(poll(Duration::ZERO, &mut attempt), Err(4));
    }
}
