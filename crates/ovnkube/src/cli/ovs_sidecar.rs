//! `ovnkube ovs-sidecar`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube ovs-sidecar                                  units, directories and bus as Debian, Fedora and RHEL have them
  ovnkube ovs-sidecar --unit openvswitch.service       the unit that boot starts, if it is not detected
  ovnkube ovs-sidecar --bus unix:path=/host/run/dbus/system_bus_socket
                                                       the host's system bus, mounted elsewhere

Enables the host's unit of Open vSwitch, and starts ovsdb-server.service and ovs-vswitchd.service when they are found stopped
or failed. It never stops, restarts or disables a unit, and leaves all running when it ends. Standard output is the
log of both daemons: their lines after the name of the daemon, continued where an earlier process ended, also across rotations. Its own
log goes to standard error. /readyz has a check for the units, for ovsdb-server, for ovs-vswitchd, for its datapaths, and for a
second ovs-vswitchd, with reason and remedy.

Run it as root, with the host's process IDs and network, its /run/dbus, /run/openvswitch and /var/log/openvswitch.

Exit status: 0 stopped on request; 1 cannot start; 2 wrong usage or invalid settings.";

/// Options of this role only.
#[derive(Debug, Args)]
pub(crate) struct OvsSidecar {
    /// Unit that starts Open vSwitch at boot [default: openvswitch-switch.service or openvswitch.service, whichever the host has]
    #[arg(long, value_name = "UNIT", env = "OVNKUBE_OVS_UNIT")]
    pub(crate) unit: Option<String>,

    /// Address of the host's system bus [default: unix:path=/run/dbus/system_bus_socket]
    #[arg(long, value_name = "ADDRESS", env = "OVNKUBE_OVS_BUS")]
    pub(crate) bus: Option<String>,

    /// Directory of Open vSwitch's log files
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/log/openvswitch", env = "OVNKUBE_OVS_LOG_DIR")]
    pub(crate) log_dir: PathBuf,

    /// Directory of Open vSwitch's sockets and pidfiles
    #[arg(long, value_name = "DIRECTORY", default_value = "/run/openvswitch", env = "OVNKUBE_OVS_RUN_DIR")]
    pub(crate) run_dir: PathBuf,

    /// Directory of the host where it keeps how far the logs were printed
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/var/lib/ovnkube/ovs-sidecar",
        env = "OVNKUBE_OVS_STATE_DIR"
    )]
    pub(crate) state_dir: PathBuf,
}
