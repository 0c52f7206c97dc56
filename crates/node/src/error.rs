//! Errors that end the agent.

use std::io;
use std::path::PathBuf;

/// Why the node agent cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The Kubernetes API cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
    /// The CNI server cannot create its socket.
    #[error("cannot listen for CNI requests in {}: {error}; check [cni] server-dir", directory.display())]
    CniSocket {
        /// Setting `[cni] server-dir`.
        directory: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A task that runs until shutdown has ended.
    #[error("{0} ended unexpectedly: this is a bug")]
    TaskEnded(&'static str),
    /// Cleanup is incomplete.
    #[error("cannot remove everything from this host: {0}; hint: fix this and run it again")]
    CleanUp(String),
}
