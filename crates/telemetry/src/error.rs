//! What can go wrong, each as one line that names the thing and the remedy.

use std::io;
use std::net::SocketAddr;

/// Why telemetry could not start, or a log filter was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else listens on the address.
    #[error(
        "cannot listen on {address}: the address is already in use; hint: stop the process that holds it, or choose another address with {setting}"
    )]
    AddressInUse {
        /// The address that was asked for.
        address: SocketAddr,
        /// The setting that changes it.
        setting: String,
    },
    /// The address cannot be listened on for another reason.
    #[error("cannot listen on {address}: {source}; hint: choose another address with {setting}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The setting that changes it.
        setting: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The filter is not one that the logs understand.
    #[error(
        "bad log filter {filter:?}: {reason}; hint: give a level (off, error, warn, info, debug, trace) or directives such as info,ovsdb=debug"
    )]
    Filter {
        /// The filter as it was given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The format is not one that the logs can be written in.
    #[error("bad log format {0:?}; hint: give auto, human or json")]
    Format(String),
    /// A process has one place for its logs.
    #[error("logs were already set up in this process; hint: set them up once, before everything else")]
    LogsAlreadySetUp,
    /// The thread, its runtime or its signal handlers could not be made.
    #[error("cannot start the telemetry thread: {0}; hint: check the process's limits (threads, open files)")]
    Thread(#[source] io::Error),
}
