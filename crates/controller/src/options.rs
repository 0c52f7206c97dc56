//! Options of the controller.

use std::path::PathBuf;

use kubernetes::LeaseSettings;
use remotes::DatabaseAccess;
use topology::ClusterSettings;

/// Options of the role `ovnkube controller`, checked by its command.
#[derive(Debug, Clone)]
pub struct Options {
    /// Network settings that all instances must share: they determine allocations and rows.
    pub cluster: ClusterSettings,
    /// Where desired rows are written.
    pub northbound: DatabaseAccess,
    /// Where acknowledgements of northd and of chassis are read, and orphaned chassis removed.
    pub southbound: DatabaseAccess,
    /// The kubeconfig; none for that of the environment, or for the in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
    /// The Lease, which may be in another cluster.
    pub election: ElectionOptions,
    /// Take over the rows of OVN-Kubernetes (Go); without it, the controller refuses a database that has them.
    pub adopt: bool,
    /// The program to run as ovn-northd while leading; none if northd runs elsewhere.
    pub northd: Option<PathBuf>,
    /// ovn-northd's control socket or its directory, for resetting a stuck northd.
    pub northd_control: PathBuf,
}

/// Where the Lease of the leader is.
#[derive(Debug, Clone)]
pub struct ElectionOptions {
    /// The kubeconfig of the cluster with the Lease, if it is another one.
    pub kubeconfig: Option<PathBuf>,
    /// Name and timing of the Lease, and this instance's identity, which must be unique.
    pub lease: LeaseSettings,
}
