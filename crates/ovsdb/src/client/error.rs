//! How calls fail.

use std::time::Duration;

use crate::transaction::{Refusal, ServerError};

/// A call that did not succeed, and what is known of its effect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server refused it; nothing happened.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The server answered a call other than a transaction with an error.
    #[error("the server answered {method} with an error: {error}")]
    Failed {
        /// The method.
        method: String,
        /// What it said.
        error: ServerError,
    },
    /// It was never sent: no server could be reached in time. Nothing happened.
    #[error("no server could be reached within {waited:?}; the last problem was: {last}")]
    NotSent {
        /// How long was waited.
        waited: Duration,
        /// Why there is no connection.
        last: String,
    },
    /// It was sent and the answer was lost: it may have happened or not.
    #[error("the answer was lost ({why}): it may have happened or not")]
    Lost {
        /// How.
        why: String,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

impl CallError {
    /// Whether it is unknown if the call took effect.
    pub fn is_unsettled(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Failed { .. })
    }
}
