//! Control sockets of OVN's and Open vSwitch's daemons (`ovs-appctl`): JSON-RPC over a unix socket, without a process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::{Remote, control_command};
use tokio::time::timeout;

/// A daemon responds at once or is hung: its main loop serves the socket.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Why a daemon did not respond.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    #[error("{name} is not running: cannot read {} ({error}); start it", pidfile.display())]
    NotRunning { name: &'static str, pidfile: PathBuf, error: io::Error },
    #[error("{} contains no process ID; restart {name}", pidfile.display())]
    InvalidPidfile { name: &'static str, pidfile: PathBuf },
    #[error("{name} (process {process}) is hung: no response on its control socket within {TIMEOUT:?}; restart it")]
    Hung { name: &'static str, process: u32 },
    #[error("cannot reach {name} by {}: {error}; is it running?", socket.display())]
    Unreachable { name: &'static str, socket: PathBuf, error: String },
}

/// A daemon with a pidfile and a control socket.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    name: &'static str,
    directory: PathBuf,
}

impl Daemon {
    /// This host's ovn-controller.
    pub(crate) fn ovn_controller() -> Self {
        let directory = std::env::var_os("OVN_RUNDIR").map_or_else(|| "/var/run/ovn".into(), Into::into);
        Self { name: "ovn-controller", directory }
    }

    /// The ovs-vswitchd that uses a database.
    pub(crate) fn vswitchd(database: &Remote) -> Self {
        Self { name: "ovs-vswitchd", directory: ovs_run_dir(database) }
    }

    /// The process ID in its pidfile.
    pub(crate) async fn process(&self) -> Result<u32, DaemonError> {
        let (name, pidfile) = (self.name, self.directory.join(format!("{}.pid", self.name)));
        match tokio::fs::read_to_string(&pidfile).await {
            Ok(text) => text.trim().parse().map_err(|_| DaemonError::InvalidPidfile { name, pidfile }),
            Err(error) => Err(DaemonError::NotRunning { name, pidfile, error }),
        }
    }

    /// Runs a command, as `ovs-appctl` does; returns its output.
    pub(crate) async fn command(&self, command: &str, arguments: &[&str]) -> Result<String, DaemonError> {
        let (name, process) = (self.name, self.process().await?);
        let socket = self.directory.join(format!("{name}.{process}.ctl"));
        let response = timeout(TIMEOUT, control_command(&socket, command, arguments)).await;
        let response = response.map_err(|_| DaemonError::Hung { name, process })?;
        response.map_err(|error| DaemonError::Unreachable { name, socket, error: error.to_string() })
    }
}

/// Directory of ovs-vswitchd's sockets, which is that of the database's socket.
pub(crate) fn ovs_run_dir(database: &Remote) -> PathBuf {
    match database {
        Remote::Unix(path) => path.parent().map_or_else(|| "/var/run/openvswitch".into(), Path::to_path_buf),
        Remote::Tcp(_) | Remote::Ssl(_) => PathBuf::from("/var/run/openvswitch"),
    }
}
