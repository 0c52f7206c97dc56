//! `ovnkube release`.

use clap::Args;

use super::controller::LeaseArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube release --dry-run                what would be removed, and what would be left to the other controller
  ovnkube release                          do it; takes about 15 seconds, so that no packet is lost

It refuses while an ovnkube controller leads, by its lock in the database and by its Lease. The manifests have the Lease in
another namespace than the default: --leader-election-namespace ovn-kubernetes.

The order of a switch to OVN-Kubernetes (Go): stop all ovnkube controllers; start the other controller and wait until it
has synced; then release. If the other controller has no replacement for one of our rows, nothing is done: that would
open a policy or cut a Service off. See docs/migration.md.

Exit status: 0 released, or a dry run of a release that can be done; 1 failure; 2 wrong usage; 3 the other controller has
no rows in place yet for the objects that are listed.";

/// Options of this command only.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Only print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Release even if an ovnkube controller leads: it is fenced and exits
    #[arg(long)]
    pub(crate) force: bool,

    /// Also remove rules and load balancers without a replacement by the other controller: opens policies and cuts
    /// Services off, so only for objects that no longer exist
    #[arg(long)]
    pub(crate) remove_unreplaced: bool,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
}
