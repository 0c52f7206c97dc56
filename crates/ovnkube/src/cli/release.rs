//! `ovnkube release`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube release --dry-run                what would be removed, and what would be left to the other controller
  ovnkube release                          do it, in one transaction

The order of a switch to OVN-Kubernetes (Go): stop all ovnkube controllers; start the other controller and wait until it
has synced; then release. If the other controller has nothing in place for something of ours, nothing is done: that would
open a policy or cut a Service off. See docs/migration.md.

Exit status: 0 released, or a dry run of a release that can be done; 1 failure; 2 wrong usage; 3 the other controller has
no rows in place yet for the objects that are listed.";

/// What only this command is told.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Only print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do it although a controller of ours leads: it is fenced off and ends
    #[arg(long)]
    pub(crate) force: bool,

    /// Remove also rules and load balancers that the other controller has nothing in place for
    #[arg(long)]
    pub(crate) remove_unreplaced: bool,

    /// The cluster that holds the controllers' Lease, if it is not the one that is served
    #[arg(long, value_name = "FILE", env = "OVNKUBE_LEADER_ELECTION_KUBECONFIG")]
    pub(crate) leader_election_kubeconfig: Option<PathBuf>,

    /// The namespace of the controllers' Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", env = "OVNKUBE_LEADER_ELECTION_NAMESPACE")]
    pub(crate) leader_election_namespace: String,

    /// The name of the controllers' Lease
    #[arg(long, value_name = "NAME", default_value = "ovn-kubernetes-master")]
    pub(crate) leader_election_lease: String,
}
