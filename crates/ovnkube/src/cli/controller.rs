//! `ovnkube controller`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube controller                                       settings from /etc/openvswitch/ovn_k8s.conf
  ovnkube controller --kubeconfig admin.conf --nb-address tcp:192.0.2.1:6641 --sb-address tcp:192.0.2.1:6642
  ovnkube controller --leader-election-kubeconfig mgmt.conf --leader-election-namespace clusters-a
                                                           the Lease is in another cluster
  ovnkube controller --adopt                               once, to take over the rows of OVN-Kubernetes (Go)

Run as many as you like: one leads, the others are standbys and take over within seconds. SIGTERM hands over at once.

Exit status: 0 stopped on request; 1 cannot start or continue; 2 wrong usage or invalid settings.";

/// Location of the controllers' Lease.
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    /// Kubeconfig of the cluster with the Lease, if it is another one
    #[arg(long, value_name = "FILE", env = "OVNKUBE_LEADER_ELECTION_KUBECONFIG")]
    pub(crate) leader_election_kubeconfig: Option<PathBuf>,

    /// Namespace of the Lease; it must exist
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", env = "OVNKUBE_LEADER_ELECTION_NAMESPACE")]
    pub(crate) leader_election_namespace: String,

    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "ovn-kubernetes-master")]
    pub(crate) leader_election_lease: String,
}

/// Options of this role only.
#[derive(Debug, Args)]
pub(crate) struct Controller {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Unique identity in the Lease [default: POD_NAME or the host name, and a random number]
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,

    /// Take over the rows of another controller by their names; once, for a migration
    #[arg(long)]
    pub(crate) adopt: bool,

    /// Run ovn-northd while this controller leads
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, default_missing_value = "ovn-northd", require_equals = true)]
    pub(crate) run_northd: Option<PathBuf>,

    /// Control socket of ovn-northd, or its directory, to reset a northd that is stuck
    #[arg(long, value_name = "PATH", default_value = "/var/run/ovn", env = "OVN_RUNDIR")]
    pub(crate) northd_control: PathBuf,
}
