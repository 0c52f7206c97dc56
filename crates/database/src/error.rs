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
    #[error("cannot create directory {}: {}; check the volume mounted there and its owner, or give another --run-dir", .0.display(), .1)]
    Directory(PathBuf, io::Error),
    /// The lock of a manager cannot be used.
    #[error("cannot lock {}: {}; check that its directory is writable and on a local file system", .0.display(), .1)]
    Lock(PathBuf, io::Error),
    /// Another process manages this server.
    #[error("another manager of this server runs and holds {}; stop it first, or give this one another volume and other sockets \
             (--data-dir, --run-dir)", .0.display())]
    AlreadyManaged(PathBuf),
    /// The Lease of the active server cannot be used.
    #[error(transparent)]
    Lease(kubernetes::LeaseSettingsError),
    /// Clients cannot reach this member by its host.
    #[error("invalid --host: {0}")]
    Address(ovsdb::client::RemoteError),
    /// The address to listen on is a name.
    #[error("invalid --listen {0:?}: with --node-authorities it must be an IP address, e.g. 0.0.0.0 or ::")]
    Listen(String),
    /// The listener for nodes cannot be prepared.
    #[error(
        "cannot prepare the listener for nodes: {0}; check the files of [ovnsouth] client-privkey, client-cert and client-cacert, \
             and that --run-dir is writable"
    )]
    NodeListener(io::Error),
    /// Only a configuration file can give a port a role.
    #[error(
        "--node-authorities needs Open vSwitch 3.3 or newer, and the image has {0}: update the image, or leave \
             --node-authorities out"
    )]
    NoRoles(String),
}
