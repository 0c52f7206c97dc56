//! Commands to the control socket of an ovsdb-server, with a time limit: a server that hangs never replies.

use std::io;
use std::path::Path;
use std::time::Duration;

use ovsdb::client::control_command;
use tokio::time::timeout;

/// Why a command was not executed, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The server cannot be reached, or refused the command.
    #[error("{command}: {error}")]
    Failed { command: String, error: io::Error },
    /// The server may still execute it.
    #[error("{command}: no reply within {} s", .limit.as_secs())]
    NoReply { command: String, limit: Duration },
}

/// Runs a command; returns its output.
pub(crate) async fn command(
    socket: &Path,
    command: &str,
    arguments: &[&str],
    limit: Duration,
) -> Result<String, CommandError> {
    match timeout(limit, control_command(socket, command, arguments)).await {
        Ok(reply) => reply.map_err(|error| CommandError::Failed { command: command.to_owned(), error }),
        Err(_) => Err(CommandError::NoReply { command: command.to_owned(), limit }),
    }
}
