//! `ovnkube release`.

use clap::Args;

use super::controller::LeaseArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube release --dry-run                what would be removed, and what would be left to the other controller
  ovnkube release                          do it; takes about 15 seconds, so that no packet is lost

It refuses while a controller of ours leads, by its lock in the database and by its Lease. The manifests have the Lease in
another namespace than the default: --leader-election-namespace ovn-kubernetes.

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

    /// Remove also rules and load balancers that the other controller has nothing in place for: opens policies and cuts
    /// Services off, so only for objects that do not exist any more
    #[arg(long)]
    pub(crate) remove_unreplaced: bool,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
}
