//! `ovnkube node`.

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube node --node n1                         settings from /etc/openvswitch/ovn_k8s.conf
  ovnkube node --gateway-mode local --gateway-interface eth0
                                                 makes the bridge breth0 of eth0, pods leave by the host's routes
  ovnkube node --cleanup                         takes everything that it made off this host again

It runs on every node, as root, beside Open vSwitch and ovn-controller. Pods keep their connections while it restarts.

Exit status: 0 stopped when asked to; 1 it cannot start or go on; 2 wrong usage, or settings that cannot work.";

/// What only this role is told.
#[derive(Debug, Args)]
pub(crate) struct Node {
    /// The name of this node's object [default: the host's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node: Option<String>,

    /// Take everything that it made off this host again, and end
    #[arg(long)]
    pub(crate) cleanup: bool,
}
