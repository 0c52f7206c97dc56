//! Options of the controller.

use std::path::PathBuf;

use kubernetes::LeaseSettings;
use ovsdb::client::{Remote, TlsFiles};
use topology::ClusterSettings;

/// Options of the controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cluster-wide network settings.
    pub cluster: ClusterSettings,
    /// Where desired rows are written.
    pub northbound: DatabaseAccess,
    /// Where acknowledgements of northd and of chassis are read, and orphaned chassis removed.
    pub southbound: DatabaseAccess,
    /// The kubeconfig; none for that of the environment, or for the in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
    /// Leader election.
    pub election: ElectionOptions,
    /// Adopt the rows of another controller.
    pub adopt: bool,
    /// The program to run as ovn-northd while leading; none if northd runs elsewhere.
    pub northd: Option<PathBuf>,
    /// ovn-northd's control socket or its directory, for resetting a stuck northd.
    pub northd_control: PathBuf,
}

/// Servers and credentials of a database.
#[derive(Debug, Clone)]
pub struct DatabaseAccess {
    /// All servers of the cluster.
    pub remotes: Vec<Remote>,
    /// The files for `ssl:` remotes.
    pub tls: Option<TlsFiles>,
}

impl DatabaseAccess {
    /// Whether any remote is `ssl:`.
    pub fn uses_tls(&self) -> bool {
        self.remotes.iter().any(|remote| matches!(remote, Remote::Ssl(_)))
    }
}

/// Leader election.
#[derive(Debug, Clone)]
pub struct ElectionOptions {
    /// The kubeconfig of the cluster with the Lease, if it is another one.
    pub kubeconfig: Option<PathBuf>,
    /// The Lease, and this instance's identity.
    pub lease: LeaseSettings,
}
