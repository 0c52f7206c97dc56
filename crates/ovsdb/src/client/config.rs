//! What a client is told: where the servers are, what to monitor, and how patient to be.

use std::time::Duration;

use crate::client::backoff::Backoff;
use crate::client::remote::Remote;
use crate::client::tls::TlsFiles;
use crate::frame::Limits;
use crate::operation::Condition;

/// A whole client.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the servers are; of a raft cluster, all members.
    pub remotes: Vec<Remote>,
    /// The database.
    pub database: String,
    /// The files for `ssl:` remotes.
    pub tls: Option<TlsFiles>,
    /// What to keep a replica of.
    pub tables: Vec<TableMonitor>,
    /// Of a raft cluster, use the leader only. Followers may be behind, but spare the leader.
    pub leader_only: bool,
    /// A server that says nothing for so long is given up. Half-way it is asked.
    pub probe_interval: Duration,
    /// How long a connection and its greeting may take.
    pub connect_timeout: Duration,
    /// How long a call may take, unless it says otherwise.
    pub call_timeout: Duration,
    /// How often the server is asked whether it still knows our monitor.
    pub audit_interval: Duration,
    /// How long to wait between tries.
    pub backoff: Backoff,
    /// What a server may demand of us.
    pub limits: Limits,
}

impl Config {
    /// A client of this database with the usual patience, which monitors nothing yet.
    pub fn new(remotes: Vec<Remote>, database: impl Into<String>) -> Self {
        Self {
            remotes,
            database: database.into(),
            tls: None,
            tables: Vec::new(),
            leader_only: true,
            probe_interval: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            audit_interval: Duration::from_secs(60),
            backoff: Backoff::default(),
            limits: Limits::default(),
        }
    }

    /// Keeps a replica of a table as well.
    #[must_use]
    pub fn monitor(mut self, table: TableMonitor) -> Self {
        self.tables.push(table);
        self
    }
}

/// One table to keep a replica of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMonitor {
    /// Its name.
    pub table: String,
    /// The columns; all if not said. One that the server does not have is left out and reported.
    pub columns: Option<Vec<String>>,
    /// Which rows: those that meet any of these conditions; all if not said.
    pub conditions: Option<Vec<Condition>>,
    /// Indexes beside those of the schema.
    pub indexes: Vec<IndexSpec>,
}

/// An index by names, before the schema is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexSpec {
    /// By columns together.
    Columns(Vec<String>),
    /// By one key of a map column.
    MapKey {
        /// The column.
        column: String,
        /// The key.
        key: String,
    },
}

impl TableMonitor {
    /// All columns and rows of a table.
    pub fn new(table: impl Into<String>) -> Self {
        Self { table: table.into(), columns: None, conditions: None, indexes: Vec::new() }
    }

    /// Only these columns.
    #[must_use]
    pub fn columns(mut self, columns: &[&str]) -> Self {
        self.columns = Some(columns.iter().map(ToString::to_string).collect());
        self
    }

    /// Only rows that meet any of these conditions.
    #[must_use]
    pub fn conditions(mut self, conditions: Vec<Condition>) -> Self {
        self.conditions = Some(conditions);
        self
    }

    /// With an index on columns.
    #[must_use]
    pub fn index(mut self, columns: &[&str]) -> Self {
        self.indexes.push(IndexSpec::Columns(columns.iter().map(ToString::to_string).collect()));
        self
    }

    /// With an index on a key of a map column.
    #[must_use]
    pub fn index_map_key(mut self, column: &str, key: &str) -> Self {
        self.indexes.push(IndexSpec::MapKey { column: column.into(), key: key.into() });
        self
    }
}
