//! Errors of calls.

use std::time::Duration;

use crate::transaction::{Refusal, ServerError};

/// A call that did not succeed; each variant says whether it took effect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server rejected the transaction: no effect.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The server replied with an error to a call other than a transaction.
    #[error("{method} failed: {error}")]
    Failed {
        /// As on the wire, such as `monitor_cancel`.
        method: String,
        /// As the server reported it.
        error: ServerError,
    },
    /// Not sent, because no server could be reached in time: no effect.
    #[error("no server reachable within {waited:.1?}; last error: {last}")]
    NotSent {
        /// Time limit of the call.
        waited: Duration,
        /// Why the last session or connection attempt ended.
        last: String,
    },
    /// Sent, but the reply was lost: in doubt.
    #[error("reply lost ({why}); the call is in doubt")]
    Lost {
        /// How the reply was lost.
        why: String,
    },
    /// All handles of the client were dropped.
    #[error("the client is closed")]
    Closed,
}

impl CallError {
    /// Whether the call may or may not have taken effect.
    pub fn is_in_doubt(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Failed { .. })
    }
}
