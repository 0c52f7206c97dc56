//! Errors, each one line with its remedy.

use std::io;
use std::net::SocketAddr;

/// Why telemetry could not start, or a log filter was rejected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process listens on the address.
    #[error(
        "cannot listen on {address}: the address is already in use; hint: stop the process that uses it, or choose another address with {setting}"
    )]
    AddressInUse {
        /// Configured address.
        address: SocketAddr,
        /// Name of the setting that changes it.
        setting: String,
    },
    /// Any other reason.
    #[error("cannot listen on {address}: {source}; hint: choose another address with {setting}")]
    Listen {
        /// Configured address.
        address: SocketAddr,
        /// Name of the setting that changes it.
        setting: String,
        /// Cause.
        source: io::Error,
    },
    /// Invalid log filter.
    #[error(
        "bad log filter {filter:?}: {reason}; hint: give a level (off, error, warn, info, debug, trace) or directives such as info,ovsdb=debug"
    )]
    Filter {
        /// As given.
        filter: String,
        /// Cause.
        reason: String,
    },
    /// Unknown log format.
    #[error("bad log format {0:?}; hint: give auto, human or json")]
    Format(String),
    /// Logs can be set up once per process.
    #[error("logs were already set up in this process; hint: set them up once, before everything else")]
    LogsAlreadySetUp,
    /// The thread, its runtime or its signal handlers could not be created.
    #[error("cannot start the telemetry thread: {0}; hint: check the process's limits (threads, open files)")]
    Thread(#[source] io::Error),
}
