//! Commands to a standalone ovsdb-server: which role it has, and from where it replicates.
//!
//! A server whose ports have roles of OVN's RBAC takes all of this from a configuration file instead, and reads it again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use ovsdb::client::Remote;

use crate::control::{self, CommandError};
use crate::options::Options;
use crate::server_config;

/// A command that is not answered within this time fails: the server is killed, or the next check repeats it.
const LIMIT: Duration = Duration::from_secs(2);
/// Inactivity probe of replication, in milliseconds. OVS's default is a minute.
const PROBE_MS: u32 = 5000;
/// Inactivity probe of clients, in milliseconds: OVS's default.
const CLIENT_PROBE_MS: u64 = 5000;

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

/// Why the server does not have a new state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("cannot write {}: {}", .0.display(), .1)]
    Write(PathBuf, io::Error),
}

/// What a configuration file says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// Accepts no writes.
    backup: bool,
    /// Replicates from there as a backup.
    source: String,
    /// Listens for other hosts.
    listens: bool,
}

/// The control socket of a server, and its configuration file if it has one.
#[derive(Debug)]
pub(crate) struct Server {
    options: Options,
    control: PathBuf,
    /// Where no server listens: what a backup replicates from as long as there is no active server.
    nowhere: String,
    state: Mutex<State>,
}

/// An address where no server ever listens.
fn nowhere(run: &Path) -> String {
    format!("unix:{}", run.join("no-active-server").display())
}

impl Server {
    pub(crate) fn new(options: &Options) -> Self {
        let run = &options.run_directory;
        let nowhere = nowhere(run);
        Self {
            control: options.kind.control_socket(run),
            state: Mutex::new(State { backup: true, source: nowhere.clone(), listens: false }),
            nowhere,
            options: options.clone(),
        }
    }

    /// Arguments of ovsdb-server that starts as a backup: read-only, and without a port for other hosts.
    pub(crate) fn start_arguments(&self) -> Result<Vec<String>, ChangeError> {
        if !self.has_file() {
            return Ok(self.options.backup_arguments(&self.nowhere));
        }
        let start = State { backup: true, source: self.nowhere.clone(), listens: false };
        self.write(&start)?;
        self.set_state(start);
        Ok(self.options.server_arguments(Some(&server_config::file(&self.options))))
    }

    /// Commands cannot give a port a role.
    fn has_file(&self) -> bool {
        self.options.nodes.is_some()
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_state(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn write(&self, state: &State) -> Result<(), ChangeError> {
        let file = server_config::file(&self.options);
        let text = contents(&self.options, state).to_string();
        std::fs::write(&file, text).map_err(|error| ChangeError::Write(file, error))
    }

    /// Writes the configuration file, and has the server read it.
    async fn change(&self, state: State) -> Result<(), ChangeError> {
        self.write(&state)?;
        self.command("reload", &[]).await?;
        self.set_state(state);
        Ok(())
    }

    async fn command(&self, command: &str, arguments: &[&str]) -> Result<String, CommandError> {
        control::command(&self.control, &format!("ovsdb-server/{command}"), arguments, LIMIT).await
    }

    pub(crate) async fn sync_status(&self) -> Result<SyncStatus, CommandError> {
        self.command("sync-status", &[]).await.map(|text| SyncStatus::parse(&text))
    }

    /// Replicates from a server: its own content is replaced when the connection is there.
    pub(crate) async fn replicate(&self, from: &Remote) -> Result<(), ChangeError> {
        if self.has_file() {
            return self.change(State { backup: true, source: from.to_string(), ..self.state() }).await;
        }
        self.command("set-active-ovsdb-server", &[&from.to_string()]).await?;
        self.command("set-active-ovsdb-server-probe-interval", &[&PROBE_MS.to_string()]).await?;
        self.command("connect-active-ovsdb-server", &[]).await?;
        Ok(())
    }

    /// Accepts writes, and listens for other hosts.
    pub(crate) async fn activate(&self) -> Result<(), ChangeError> {
        if self.has_file() {
            return self.change(State { backup: false, source: self.nowhere.clone(), listens: true }).await;
        }
        self.resume().await?;
        for remote in self.options.network_remotes() {
            self.command("add-remote", &[&remote.address]).await?;
        }
        Ok(())
    }

    /// Accepts no writes any more; sessions are closed, and can only read when they come back.
    pub(crate) async fn suspend(&self) -> Result<(), ChangeError> {
        if self.has_file() {
            return self.change(State { backup: true, source: self.nowhere.clone(), ..self.state() }).await;
        }
        self.command("set-active-ovsdb-server", &[&self.nowhere]).await?;
        self.command("connect-active-ovsdb-server", &[]).await?;
        Ok(())
    }

    /// Accepts writes.
    pub(crate) async fn resume(&self) -> Result<(), ChangeError> {
        if self.has_file() {
            return self.change(State { backup: false, ..self.state() }).await;
        }
        self.command("disconnect-active-ovsdb-server", &[]).await?;
        Ok(())
    }
}

/// Content of the configuration file.
fn contents(options: &Options, state: &State) -> Value {
    let remotes = if state.listens { options.server_remotes() } else { vec![options.local_remote()] };
    let source = Map::from_iter([(state.source.clone(), json!({ "inactivity-probe": PROBE_MS }))]);
    let file = options.kind.file(&options.data_directory).display().to_string();
    let database = json!({ "service-model": "active-backup", "backup": state.backup, "source": source });
    json!({
        "remotes": server_config::remotes(&remotes, CLIENT_PROBE_MS),
        "databases": Map::from_iter([(file, database)]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::node_options;

    #[test]
    fn only_an_active_server_listens_for_other_hosts() {
        let options = node_options();
        let mut state = State { backup: true, source: "ssl:192.0.2.1:6646".into(), listens: false };
        let backup = contents(&options, &state);
        assert_eq!(backup["remotes"].as_object().unwrap().len(), 1);
        let database = &backup["databases"]["/data/ovnsb_db.db"];
        assert_eq!((&database["service-model"], &database["backup"]), (&json!("active-backup"), &json!(true)));
        assert!(database["source"]["ssl:192.0.2.1:6646"].is_object());
        (state.backup, state.listens) = (false, true);
        let active = contents(&options, &state);
        assert_eq!(active["databases"]["/data/ovnsb_db.db"]["backup"], false);
        assert_eq!(active["remotes"]["pssl:6648:127.0.0.1"]["role"], "ovn-controller");
        assert!(active["remotes"]["pssl:6646:[::]"]["role"].is_null());
    }

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
