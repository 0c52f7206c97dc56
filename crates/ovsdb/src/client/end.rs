//! Why sessions end.

use std::time::Duration;

use crate::client::remote::Remote;
use crate::client::wire::WireError;
use crate::transaction::ServerError;

/// Reason that a session ended; shown in [`Status::last_error`](crate::client::Status).
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("no data from the server for {0:.1?}")]
    Silent(Duration),
    #[error("no reply from the server, and {0} leads now")]
    Succeeded(Remote),
    #[error("the server has no database {0:?}")]
    NoDatabase(String),
    #[error("the server is not connected to its cluster")]
    Disconnected,
    #[error("the server is not the leader")]
    NotLeader,
    #[error("the server is behind: it is at raft index {has}, the replica at {seen}")]
    Behind { has: i64, seen: i64 },
    #[error("the server belongs to another cluster ({found}, not {expected})")]
    OtherCluster { found: String, expected: String },
    #[error("the server is no longer one of the database's")]
    Removed,
    #[error("the database's schema has changed")]
    SchemaChanged,
    #[error("the server no longer knows our monitor")]
    MonitorDropped,
    #[error("malformed message from the server: {0}")]
    Malformed(String),
    #[error("the server rejected {method}: {error}")]
    Refused { method: String, error: ServerError },
    #[error("the client was closed")]
    Closed,
}

/// A message that could not be parsed.
pub(crate) fn malformed(error: impl std::fmt::Display) -> SessionEnd {
    SessionEnd::Malformed(error.to_string())
}
