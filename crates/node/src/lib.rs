//! The node agent's edges. What a node's gateway shall be is decided in `gateway`, which knows no runtime; here it is
//! carried, pods are wired, and the node says what it has.
//!
//! ```text
//!  runtime ──shim──▶ cni ──▶ kernel (netlink) + switch (Open vSwitch's database) ──ovn-controller──▶ installed ──▶ answer
//!  Services, slices, nodes ──watches──▶ gateway ──▶ flows of br-ex, nftables, routes, the management port
//!  annotations, conditions, CNI's files ◀── report
//! ```

pub mod kernel;
mod options;
pub mod switch;

pub use options::{
    CniOptions, EXTERNAL_BRIDGE, Encapsulation, GatewayMode, GatewayOptions, INTEGRATION_BRIDGE, MANAGEMENT_PORT,
    Options,
};
