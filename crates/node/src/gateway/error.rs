//! Errors of the gateway.

use std::io;
use std::path::PathBuf;

use ovsdb::client::CallError;

use super::bridge::BridgeError;
use super::process::CommandError;
use crate::kernel::KernelError;

/// Why the gateway could not be brought to its desired state. The next reconciliation retries.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayError {
    /// The replica of the switch's database is not current.
    #[error("not connected to Open vSwitch's database")]
    Disconnected,
    /// The external bridge, or the device for it, cannot be used.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// The device's MTU leaves too little for pods.
    #[error(transparent)]
    Mtu(#[from] gateway::MtuError),
    /// The annotation with the node's subnets is invalid, and no earlier ones are known.
    #[error("{0}; correct the annotation, or remove it")]
    Subnets(String),
    /// A netlink socket cannot be opened.
    #[error("cannot open a netlink socket: {0}")]
    Netlink(io::Error),
    /// The kernel refused a change of a device, an address, a route or a neighbour.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The host's addresses could not be moved; they were moved back unless `rollback` is set.
    #[error(
        "cannot move the addresses of {device} to bridge {bridge}: {error}{}",
        rollback.as_ref().map(|error| format!("; rollback failed: {error}")).unwrap_or_default()
    )]
    Move { device: String, bridge: String, error: Box<KernelError>, rollback: Option<Box<KernelError>> },
    /// An earlier attempt failed, and the next one is not due: each one interrupts the host's network.
    #[error(
        "{error}; the next attempt to create bridge {bridge} follows within two minutes, or when the agent restarts"
    )]
    SetupDelayed { bridge: String, error: String },
    /// A kernel setting cannot be written.
    #[error("cannot set {} to {value}: {error}", path.display())]
    Sysctl { path: PathBuf, value: String, error: io::Error },
    /// `ovs-ofctl` or `nft` failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A transaction failed.
    #[error("Open vSwitch's database rejected a change: {0}")]
    Ovsdb(#[from] CallError),
}
