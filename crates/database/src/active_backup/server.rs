//! Commands to a standalone ovsdb-server: which role it has, and from where it replicates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::Remote;

use crate::control::{self, CommandError};
use crate::options::Options;

/// A command that is not answered within this time fails: the server is killed, or the next check repeats it.
const LIMIT: Duration = Duration::from_secs(2);
/// Inactivity probe of replication, in milliseconds. OVS's default is a minute.
const PROBE_MS: &str = "5000";

/// What the server says about its replication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SyncStatus {
    /// It accepts writes.
    Active,
    /// It has a copy of all data of this server, and follows its changes.
    Replicating(String),
    /// It is read-only, and not connected.
    NotConnected(String),
}

impl SyncStatus {
    /// Parses the output of `ovsdb-server/sync-status`.
    pub(crate) fn parse(text: &str) -> Self {
        let value = |key: &str| text.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
        match (value("state:"), value("replicating:")) {
            (Some("active"), _) => Self::Active,
            (_, Some(server)) => Self::Replicating(server.trim_end_matches(',').to_owned()),
            _ => Self::NotConnected(text.trim().replace('\n', ", ")),
        }
    }
}

/// The control socket of a server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    control: PathBuf,
    /// Where no server listens: what a backup replicates from as long as there is no active server.
    nowhere: String,
    listen: String,
}

/// An address where no server ever listens.
fn nowhere(run: &Path) -> String {
    format!("unix:{}", run.join("no-active-server").display())
}

/// Arguments of ovsdb-server that starts as a backup: read-only, and without a port for other hosts.
pub(crate) fn arguments(options: &Options) -> Vec<String> {
    options.backup_arguments(&nowhere(&options.run_directory))
}

impl Server {
    pub(crate) fn new(options: &Options) -> Self {
        let run = &options.run_directory;
        let [_, listen] = options.server_remotes();
        Self { control: options.kind.control_socket(run), nowhere: nowhere(run), listen }
    }

    async fn command(&self, command: &str, arguments: &[&str]) -> Result<String, CommandError> {
        control::command(&self.control, &format!("ovsdb-server/{command}"), arguments, LIMIT).await
    }

    pub(crate) async fn sync_status(&self) -> Result<SyncStatus, CommandError> {
        self.command("sync-status", &[]).await.map(|text| SyncStatus::parse(&text))
    }

    /// Replicates from a server: its own content is replaced when the connection is there.
    pub(crate) async fn replicate(&self, from: &Remote) -> Result<(), CommandError> {
        self.command("set-active-ovsdb-server", &[&from.to_string()]).await?;
        self.command("set-active-ovsdb-server-probe-interval", &[PROBE_MS]).await?;
        self.command("connect-active-ovsdb-server", &[]).await.map(drop)
    }

    /// Accepts writes, and listens for other hosts.
    pub(crate) async fn activate(&self) -> Result<(), CommandError> {
        self.resume().await?;
        self.command("add-remote", &[&self.listen]).await.map(drop)
    }

    /// Accepts no writes any more; sessions are closed, and can only read when they come back.
    pub(crate) async fn suspend(&self) -> Result<(), CommandError> {
        self.command("set-active-ovsdb-server", &[&self.nowhere]).await?;
        self.command("connect-active-ovsdb-server", &[]).await.map(drop)
    }

    /// Accepts writes.
    pub(crate) async fn resume(&self) -> Result<(), CommandError> {
        self.command("disconnect-active-ovsdb-server", &[]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sync_status_is_parsed() {
        let parse = SyncStatus::parse;
        assert_eq!(parse("database: OVN_Northbound\nstate: active\n"), SyncStatus::Active);
        let text = "database: OVN_Northbound\nstate: backup\nreplicating: ssl:192.0.2.1:6641\n";
        assert_eq!(parse(text), SyncStatus::Replicating("ssl:192.0.2.1:6641".into()));
        for text in ["database: D\nstate: backup\nconnecting: ssl:192.0.2.1:6641\n", "", "state: backup"] {
            assert!(matches!(parse(text), SyncStatus::NotConnected(_)), "{text}");
        }
    }
}
