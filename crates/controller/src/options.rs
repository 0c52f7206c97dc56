//! What the controller is told.

use std::path::PathBuf;

use kubernetes::LeaseSettings;
use ovsdb::client::{Remote, TlsFiles};
use topology::ClusterSettings;

/// What the controller is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the administrator says about the whole network.
    pub cluster: ClusterSettings,
    /// Where the northbound database is.
    pub northbound: DatabaseAccess,
    /// Where the southbound database is.
    pub southbound: DatabaseAccess,
    /// How to reach the API; none is the environment's, or the cluster's that we run in.
    pub kubeconfig: Option<PathBuf>,
    /// Who leads.
    pub election: ElectionOptions,
    /// Take over the rows of another controller, once.
    pub adopt: bool,
    /// The program to start as ovn-northd while we lead; none leaves that to others.
    pub northd: Option<PathBuf>,
    /// ovn-northd's control socket, or the directory where it is: one that is stuck is told to start over.
    pub northd_control: PathBuf,
}

/// Where a database is.
#[derive(Debug, Clone)]
pub struct DatabaseAccess {
    /// All its servers.
    pub remotes: Vec<Remote>,
    /// The files for `ssl:` remotes.
    pub tls: Option<TlsFiles>,
}

impl DatabaseAccess {
    /// Whether any of its servers is reached by TLS.
    pub fn uses_tls(&self) -> bool {
        self.remotes.iter().any(|remote| matches!(remote, Remote::Ssl(_)))
    }
}

/// Who leads.
#[derive(Debug, Clone)]
pub struct ElectionOptions {
    /// The cluster that holds the Lease, if it is another one.
    pub kubeconfig: Option<PathBuf>,
    /// The Lease, and our name in it.
    pub lease: LeaseSettings,
}
