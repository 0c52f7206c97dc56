//! Why sessions end.

use std::time::Duration;

use crate::client::wire::WireError;
use crate::transaction::ServerError;

/// How a session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("the server said nothing for {0:?}")]
    Silent(Duration),
    #[error("the server does not have a database {0:?}")]
    NoDatabase(String),
    #[error("the server is not connected to its cluster")]
    Disconnected,
    #[error("the server is not the leader")]
    NotLeader,
    #[error("the server is behind: it is at index {has}, we have seen {seen}")]
    Behind { has: i64, seen: i64 },
    #[error("the server belongs to another cluster ({found}, not {expected})")]
    OtherCluster { found: String, expected: String },
    #[error("the database's schema has changed")]
    SchemaChanged,
    #[error("the server no longer knows our monitor")]
    MonitorDropped,
    #[error("the server sent what cannot be understood: {0}")]
    Malformed(String),
    #[error("the server refused {method}: {error}")]
    Refused { method: String, error: ServerError },
    #[error("the client was closed")]
    Closed,
}

/// What came cannot be understood.
pub(crate) fn malformed(error: impl std::fmt::Display) -> SessionEnd {
    SessionEnd::Malformed(error.to_string())
}
