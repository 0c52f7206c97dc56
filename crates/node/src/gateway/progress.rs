//! Outcome of a reconciliation that did not fail.

use std::fmt;

use super::error::GatewayError;
use crate::options::{INTEGRATION_BRIDGE, MANAGEMENT_PORT};
use crate::readiness::State;

/// A completed step, or what it waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress<T = ()> {
    Done(T),
    Waiting(Waiting),
}

/// What another component has to do before the gateway is complete. The next reconciliation continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The bridge was written to the database; ovs-vswitchd creates it.
    BridgeCreated { bridge: String, device: String },
    /// The host's addresses were moved; the kernel reports them on the bridge next.
    AddressesMoved { bridge: String },
    /// ovs-vswitchd has not assigned an OpenFlow port number.
    PortNumber { bridge: String, port: String },
    /// ovs-vswitchd has not created the internal device of the bridge.
    BridgeDevice { bridge: String },
    /// The controller has not allocated a subnet.
    Subnet,
    /// ovn-controller has not created br-int.
    IntegrationBridge,
    /// ovs-vswitchd has not created the management port.
    ManagementPort,
    /// ovn-controller has not created the patch port to br-int.
    PatchPort { bridge: String, port: String },
    /// Services, EndpointSlices, Nodes and pods are not listed yet.
    Objects,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BridgeCreated { bridge, device } => {
                write!(f, "bridge {bridge} was just created from {device}: is ovs-vswitchd running?")
            }
            Self::AddressesMoved { bridge } => write!(f, "the host's addresses were just moved to bridge {bridge}"),
            Self::PortNumber { bridge, port } => {
                write!(f, "port {port} of bridge {bridge} has no OpenFlow number yet: is ovs-vswitchd running?")
            }
            Self::BridgeDevice { bridge } => write!(f, "the host has no device {bridge} yet: is ovs-vswitchd running?"),
            Self::Subnet => f.write_str("the controller has not allocated a subnet for this node yet: is it running?"),
            Self::IntegrationBridge => {
                write!(f, "ovn-controller has not created bridge {INTEGRATION_BRIDGE} yet: is it running?")
            }
            Self::ManagementPort => write!(f, "the host has no device {MANAGEMENT_PORT} yet: is ovs-vswitchd running?"),
            Self::PatchPort { bridge, port } => write!(
                f,
                "bridge {bridge} is not connected to OVN yet: ovn-controller creates port {port} when the controller has \
                 configured this node"
            ),
            Self::Objects => f.write_str("Services and pods are not listed yet: is the API server reachable?"),
        }
    }
}

/// The readiness that follows from an outcome: waiting and failing are both not ready.
pub(super) fn state(outcome: &Result<Progress, GatewayError>) -> State {
    match outcome {
        Ok(Progress::Done(())) => Ok(()),
        Ok(Progress::Waiting(waiting)) => Err(waiting.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_not_ready_and_names_what_is_missing() {
        assert_eq!(state(&Ok(Progress::Done(()))), Ok(()));
        let waiting = Waiting::PatchPort { bridge: "br-ex".into(), port: "patch-br-ex_n1-to-br-int".into() };
        let why = state(&Ok(Progress::Waiting(waiting))).unwrap_err();
        assert!(why.contains("br-ex is not connected to OVN yet") && why.contains("patch-br-ex_n1-to-br-int"), "{why}");
        let why = state(&Err(GatewayError::Disconnected)).unwrap_err();
        assert_eq!(why, "not connected to Open vSwitch's database");
    }
}
