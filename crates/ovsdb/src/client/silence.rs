//! When a silent server is sent an echo, and given up. Pure: the time is an input.
//!
//! A leader that hangs is left before that, as soon as another member leads (`succession`). This limit is for the case that
//! none does: a leader that compacts its database is silent for seconds and still leads.

use std::time::{Duration, Instant};

/// What to do next about the silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing before this time.
    Wait(Instant),
    SendEcho,
    GiveUp,
}

/// The silence of one session's server.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    /// When an echo was sent that has no reply yet.
    asked: Option<Instant>,
}

impl Silence {
    /// The server is given up after `limit` without data; an echo is sent at half of it.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, asked: None }
    }

    /// The next action. An echo counts as sent when it is returned.
    pub(crate) fn next(&mut self, now: Instant, last_received: Instant) -> Action {
        self.asked = self.asked.filter(|asked| last_received <= *asked);
        let Some(asked) = self.asked else {
            let due = last_received + self.limit / 2;
            if now < due {
                return Action::Wait(due);
            }
            self.asked = Some(now);
            return Action::SendEcho;
        };
        // Counted from the echo: if this process was stopped, the reply must be read first.
        let given_up = asked + self.limit / 2;
        if now >= given_up { Action::GiveUp } else { Action::Wait(given_up) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn an_echo_is_sent_at_half_of_the_limit_and_data_begins_it_anew() {
        let start = Instant::now();
        let mut silence = Silence::new(Duration::from_secs(10));
        assert_eq!(silence.next(at(start, 4999), start), Action::Wait(at(start, 5000)));
        assert_eq!(silence.next(at(start, 5000), start), Action::SendEcho);
        assert_eq!(silence.next(at(start, 7000), start), Action::Wait(at(start, 10_000)));
        let reply = at(start, 7500);
        assert_eq!(silence.next(reply, reply), Action::Wait(at(start, 12_500)));
        assert_eq!(silence.next(at(start, 12_500), reply), Action::SendEcho);
        assert_eq!(silence.next(at(start, 17_500), reply), Action::GiveUp);
    }

    #[test]
    fn a_process_that_was_stopped_asks_first() {
        let start = Instant::now();
        let mut silence = Silence::new(Duration::from_secs(5));
        assert_eq!(silence.next(at(start, 60_000), start), Action::SendEcho);
        assert_eq!(silence.next(at(start, 60_000), start), Action::Wait(at(start, 62_500)));
    }
}
