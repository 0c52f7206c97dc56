//! Compares the clock of this machine with the API server's before something is signed: a certificate with wrong dates would be
//! refused everywhere else.

use std::time::Duration;

use jiff::Timestamp;
use kubernetes::ApiError;

use crate::signer::store::Store;

/// Larger differences are refused. A CA's validity starts an hour in the past.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Why nothing is signed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClockError {
    #[error(
        "the clock of this machine is {} s {} that of the API server: nothing is signed, because others would refuse the \
         certificates; correct the clock (NTP)",
        difference.as_secs(), if *.ahead { "ahead of" } else { "behind" }
    )]
    Wrong { difference: Duration, ahead: bool },
    #[error("cannot ask the API server for its time: {0}")]
    Api(ApiError),
}

/// Fails if this machine's clock is wrong.
pub(super) async fn check(store: &Store) -> Result<(), ClockError> {
    let sent = Timestamp::now();
    match store.server_time().await {
        Ok(server) => compare(sent, Timestamp::now(), server),
        // A webhook that refuses dry runs must not prevent renewals.
        Err(ApiError::Invalid(error) | ApiError::Forbidden(error) | ApiError::Refused { message: error, .. }) => {
            tracing::warn!(error, "the clock cannot be compared with the API server's; signing all the same");
            Ok(())
        }
        Err(error) => Err(ClockError::Api(error)),
    }
}

/// `server` has whole seconds and lies between both other times.
fn compare(sent: Timestamp, received: Timestamp, server: Timestamp) -> Result<(), ClockError> {
    let ahead = sent.duration_since(server);
    let behind = server.duration_since(received);
    let (difference, ahead) = if ahead > behind { (ahead, true) } else { (behind, false) };
    let difference = difference.unsigned_abs();
    if ahead && sent < server || !ahead && received > server || difference <= TOLERANCE {
        return Ok(());
    }
    Err(ClockError::Wrong { difference, ahead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_is_far_off_is_wrong() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        for (sent, received, server) in [(0, 1, 0), (0, 1, 300), (300, 301, 0), (0, 900, 450), (0, 900, 1100)] {
            assert!(compare(at(sent), at(received), at(server)).is_ok(), "{sent} {received} {server}");
        }
        let wrong = |sent, received, server| compare(at(sent), at(received), at(server)).unwrap_err().to_string();
        assert!(wrong(400, 401, 0).contains("400 s ahead of"));
        assert!(wrong(0, 1, 4000).contains("3999 s behind"));
    }
}
