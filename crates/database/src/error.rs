//! Errors that end the manager of a member.

use std::io;
use std::path::PathBuf;

/// The manager cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The Kubernetes API cannot be accessed with this configuration.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
    /// A directory cannot be created.
    #[error("cannot create directory {}: {}", .0.display(), .1)]
    Directory(PathBuf, io::Error),
}
