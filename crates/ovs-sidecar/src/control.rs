//! Control sockets of the daemons (`ovs-appctl`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use hostovs::units::Daemon;
use ovsdb::client::control_command;
use tokio::time::timeout;

/// A daemon responds at once or is hung: its main loop serves the socket.
const LIMIT: Duration = Duration::from_secs(3);

/// Why a daemon did not respond.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("{daemon} does not run: cannot read {} ({error})", pidfile.display())]
    NotRunning { daemon: Daemon, pidfile: PathBuf, error: std::io::Error },
    #[error("{} contains no process ID; on the host: systemctl restart {daemon}", pidfile.display())]
    InvalidPidfile { daemon: Daemon, pidfile: PathBuf },
    #[error(
        "{daemon} (process {process}) is hung: no response on its control socket within {LIMIT:?}; on the host: systemctl restart {daemon}"
    )]
    Hung { daemon: Daemon, process: u32 },
    #[error("cannot reach {daemon} by {} ({error})", socket.display())]
    Unreachable { daemon: Daemon, socket: PathBuf, error: std::io::Error },
}

/// Runs a command of a daemon, and returns its output.
pub(crate) async fn command(
    directory: &Path,
    daemon: Daemon,
    command: &str,
    arguments: &[&str],
) -> Result<String, ControlError> {
    let pidfile = directory.join(format!("{daemon}.pid"));
    let process: u32 = match tokio::fs::read_to_string(&pidfile).await {
        Ok(text) => text.trim().parse().map_err(|_| ControlError::InvalidPidfile { daemon, pidfile })?,
        Err(error) => return Err(ControlError::NotRunning { daemon, pidfile, error }),
    };
    let socket = directory.join(format!("{daemon}.{process}.ctl"));
    let response = timeout(LIMIT, control_command(&socket, command, arguments)).await;
    let response = response.map_err(|_| ControlError::Hung { daemon, process })?;
    response.map_err(|error| ControlError::Unreachable { daemon, socket, error })
}
