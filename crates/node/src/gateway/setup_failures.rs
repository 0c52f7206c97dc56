//! Delays the next attempt to create the external bridge after one that failed.
//!
//! Each attempt takes the host's addresses off their device and puts them back, so it interrupts the host's network. It also
//! changes devices and rows, and these changes wake the reconciler: without this delay it would try again at once, for ever.

use std::time::{Duration, Instant};

use backoff::{Backoff, Retries};

use super::bridge_setup::name_for;
use super::error::GatewayError;

/// Delays between attempts to create the bridge.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(120));

/// Failed attempts to move the host's addresses to a new bridge.
#[derive(Debug)]
pub(super) struct SetupFailures {
    retries: Retries,
    last: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    error: String,
    next_attempt: Instant,
}

impl Default for SetupFailures {
    fn default() -> Self {
        Self { retries: Retries::without_jitter(BACKOFF), last: None }
    }
}

impl SetupFailures {
    /// Notes the outcome of moving the host's addresses, and returns it. True: they were moved.
    pub(super) fn note(&mut self, outcome: Result<bool, GatewayError>, now: Instant) -> Result<bool, GatewayError> {
        match &outcome {
            Ok(true) => {
                self.retries.reset();
                self.last = None;
            }
            Err(error @ GatewayError::Move { .. }) => {
                let next_attempt = now + self.retries.next_delay();
                self.last = Some(Failure { error: error.to_string(), next_attempt });
            }
            // Nothing was moved, or the bridge is still there.
            Ok(false) | Err(_) => {}
        }
        outcome
    }

    /// Fails until the next attempt to create a bridge from this device is due.
    pub(super) fn check(&self, device: &str, now: Instant) -> Result<(), GatewayError> {
        let Some(Failure { error, next_attempt }) = &self.last else { return Ok(()) };
        if now >= *next_attempt {
            return Ok(());
        }
        Err(GatewayError::SetupDelayed { bridge: name_for(device), error: error.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KernelError;

    fn failed() -> Result<bool, GatewayError> {
        let error = Box::new(KernelError::of("cannot add address", &rtnetlink::Error::RequestFailed));
        Err(GatewayError::Move { device: "eth0".into(), bridge: "breth0".into(), error, rollback: None })
    }

    #[test]
    fn attempts_to_create_the_bridge_are_delayed_ever_longer() {
        let (mut failures, mut now) = (SetupFailures::default(), Instant::now());
        assert!(failures.check("eth0", now).is_ok());
        for delay in [5, 10, 20, 40, 80, 120, 120].map(Duration::from_secs) {
            assert!(failures.note(failed(), now).is_err());
            let error = failures.check("eth0", now + delay - Duration::from_millis(1)).unwrap_err().to_string();
            assert!(
                error.contains("cannot move the addresses of eth0") && error.contains("bridge breth0 follows"),
                "{error}"
            );
            now += delay;
            assert!(failures.check("eth0", now).is_ok());
        }
        assert!(failures.note(Ok(true), now).is_ok());
        assert!(failures.check("eth0", now).is_ok());
        assert!(failures.note(failed(), now).is_err());
        assert!(failures.check("eth0", now + BACKOFF.first).is_ok());
    }
}
