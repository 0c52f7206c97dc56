//! br-ex exactly as the deployer says: host configurations in NMState's YAML are read, checked and rendered. No I/O: the
//! commands of `ovnkube bridge` read and write the files.
//!
//! ```text
//!  install-config, NMState file ──yaml──▶ nodes with lines ──hosts──▶ Host (name, NMState)
//!                                                                      ├─rules──▶ violations: code, line, reason, remedy
//!                                                                      └─render─▶ NMState · Ignition · MachineConfig
//!  flags ──default_bridge──▶ NMState of a simple host        host name, directory ──select──▶ the file of this node
//! ```

mod default_bridge;
mod hosts;
mod nmstate;
mod render;
mod rules;
mod select;
mod spelling;
mod violation;
pub mod yaml;

pub use default_bridge::{DefaultBridge, Dhcp};
pub use hosts::{Checked, Form, Host, check};
pub use render::{HostFile, ignition, machine_config, nmstate_files};
pub use select::{Selected, SelectionError, select};
pub use violation::{Code, Severity, Violation};

/// The bridge that every host configuration must have.
pub const BRIDGE: &str = "br-ex";
/// Where a node keeps the NMState files of its own and of other hosts.
pub const DIRECTORY: &str = "/etc/nmstate/openshift";
/// The file of hosts that have none of their own, without its ending.
pub const EVERY_HOST: &str = "cluster";
