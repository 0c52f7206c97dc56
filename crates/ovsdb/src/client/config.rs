//! Configuration of a client: servers, monitored tables, timeouts.

use std::time::Duration;

use backoff::Backoff;
use tokio::sync::watch;

use crate::client::remote::Remote;
use crate::client::tls::TlsFiles;
use crate::frame::Limits;
use crate::operation::Condition;

/// Configuration of one client.
#[derive(Debug, Clone)]
pub struct Config {
    /// The servers; all members of a raft cluster.
    pub remotes: Vec<Remote>,
    /// Replaces `remotes` whenever it has a list that is not empty. A session with a server that is still listed continues.
    pub remote_updates: Option<watch::Receiver<Option<Vec<Remote>>>>,
    /// Name of the database, such as `OVN_Northbound`.
    pub database: String,
    /// Required for `ssl:` remotes.
    pub tls: Option<TlsFiles>,
    /// Tables to replicate; none for a client that only sends transactions.
    pub tables: Vec<TableMonitor>,
    /// Connect to the raft leader only. Followers may lag, but take load off the leader.
    pub leader_only: bool,
    /// Close the connection after this long without data; an echo is sent at half of it.
    pub probe_interval: Duration,
    /// Limit of connecting and of the handshake.
    pub connect_timeout: Duration,
    /// Default limit of a call.
    pub call_timeout: Duration,
    /// How often to check that the server still has our monitor.
    pub audit_interval: Duration,
    /// Delay between connection attempts.
    pub backoff: Backoff,
    /// Limits of incoming messages.
    pub limits: Limits,
}

impl Config {
    /// Default timeouts, and no monitored tables.
    pub fn new(remotes: Vec<Remote>, database: impl Into<String>) -> Self {
        Self {
            remotes,
            remote_updates: None,
            database: database.into(),
            tls: None,
            tables: Vec::new(),
            leader_only: true,
            probe_interval: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            audit_interval: Duration::from_secs(60),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(4)),
            limits: Limits::default(),
        }
    }

    /// Adds a table to replicate.
    #[must_use]
    pub fn monitor(mut self, table: TableMonitor) -> Self {
        self.tables.push(table);
        self
    }
}

/// Which part of a table is replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMonitor {
    /// As in the schema, such as `Logical_Switch`.
    pub table: String,
    /// Columns; all if `None`. One that the server lacks is skipped and listed in
    /// [`Status::missing`](crate::client::Status).
    pub columns: Option<Vec<String>>,
    /// Rows that match any of these conditions; all if `None`.
    pub conditions: Option<Vec<Condition>>,
    /// Indexes in addition to those of the schema.
    pub indexes: Vec<IndexSpec>,
}

/// An index by column names; resolved when the schema is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexSpec {
    /// On the combination of these columns.
    Columns(Vec<String>),
    /// On the value of one key of a map column.
    MapKey {
        /// Name of the map column.
        column: String,
        /// Key whose value is indexed.
        key: String,
    },
}

impl TableMonitor {
    /// All columns and rows of a table.
    pub fn new(table: impl Into<String>) -> Self {
        Self { table: table.into(), columns: None, conditions: None, indexes: Vec::new() }
    }

    /// Restricts the replica to these columns.
    #[must_use]
    pub fn columns(mut self, columns: &[&str]) -> Self {
        self.columns = Some(columns.iter().map(ToString::to_string).collect());
        self
    }

    /// Only rows that match any of these conditions.
    #[must_use]
    pub fn conditions(mut self, conditions: Vec<Condition>) -> Self {
        self.conditions = Some(conditions);
        self
    }

    /// Adds an index on the combination of columns.
    #[must_use]
    pub fn index(mut self, columns: &[&str]) -> Self {
        self.indexes.push(IndexSpec::Columns(columns.iter().map(ToString::to_string).collect()));
        self
    }

    /// Adds an index on a key of a map column.
    #[must_use]
    pub fn index_map_key(mut self, column: &str, key: &str) -> Self {
        self.indexes.push(IndexSpec::MapKey { column: column.into(), key: key.into() });
        self
    }
}
