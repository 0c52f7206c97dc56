//! `ovnkube controller`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube controller                                       settings from /etc/openvswitch/ovn_k8s.conf
  ovnkube controller --kubeconfig admin.conf --nb-address tcp:192.0.2.1:6641 --sb-address tcp:192.0.2.1:6642
  ovnkube controller --leader-election-kubeconfig mgmt.conf --leader-election-namespace clusters-a
                                                           the Lease lives in another cluster
  ovnkube controller --adopt                               once, to take over the rows of OVN-Kubernetes (Go)

Run as many as you like: one leads, the others stay warm and take over within seconds. SIGTERM hands over at once.

Exit status: 0 stopped when asked to; 1 it cannot start or go on; 2 wrong usage, or settings that cannot work.";

/// Where the controllers' Lease is.
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    /// The cluster that holds the Lease, if it is not the one that is served
    #[arg(long, value_name = "FILE", env = "OVNKUBE_LEADER_ELECTION_KUBECONFIG")]
    pub(crate) leader_election_kubeconfig: Option<PathBuf>,

    /// The Lease's namespace; it must exist
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", env = "OVNKUBE_LEADER_ELECTION_NAMESPACE")]
    pub(crate) leader_election_namespace: String,

    /// The Lease's name
    #[arg(long, value_name = "NAME", default_value = "ovn-kubernetes-master")]
    pub(crate) leader_election_lease: String,
}

/// What only this role is told.
#[derive(Debug, Args)]
pub(crate) struct Controller {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Our name in the Lease, which nobody else may have [default: POD_NAME or the host's name, and the process]
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,

    /// Take over the rows of another controller by their names: a migration, done once
    #[arg(long)]
    pub(crate) adopt: bool,

    /// Start ovn-northd and watch it while we lead
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, default_missing_value = "ovn-northd", require_equals = true)]
    pub(crate) run_northd: Option<PathBuf>,

    /// ovn-northd's control socket, or the directory where it is, to reset a northd that is stuck
    #[arg(long, value_name = "PATH", default_value = "/var/run/ovn", env = "OVN_RUNDIR")]
    pub(crate) northd_control: PathBuf,
}
