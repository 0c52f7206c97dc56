//! `ovnkube node`.

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube node --node n1                         settings from /etc/openvswitch/ovn_k8s.conf
  ovnkube node --gateway-mode local --gateway-interface eth0
                                                 creates the bridge breth0 from eth0; pods use the host's routes
  ovnkube node --cleanup                         removes everything that the agent created on this host

Run it on every node, as root, with Open vSwitch and ovn-controller. Pods keep their connections while it restarts.

Exit status: 0 stopped on request; 1 cannot start or continue; 2 wrong usage or invalid settings.";

/// Options of this role only.
#[derive(Debug, Args)]
pub(crate) struct Node {
    /// Name of this host's Node object [default: the host name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node: Option<String>,

    /// Remove everything that the agent created on this host, and exit
    #[arg(long)]
    pub(crate) cleanup: bool,
}
