//! The node agent's edges. What a node's gateway shall be is decided in `gateway`, which knows no runtime; here it is
//! carried, pods are wired, and the node says what it has.
//!
//! ```text
//!  runtime ──shim──▶ cni ──▶ kernel (netlink) + switch (Open vSwitch's database) ──ovn-controller──▶ installed ──▶ answer
//!  Services, slices, nodes ──watches──▶ gateway ──▶ flows of br-ex, nftables, routes, the management port
//!  annotations, conditions, CNI's files ◀── report
//! ```

mod cluster_size;
pub mod cni;
pub mod condition;
mod daemon;
mod error;
pub mod gateway;
pub mod host_settings;
mod integration;
pub mod kernel;
mod openflow_wire;
mod options;
mod ovn_controller;
pub mod own_node;
mod pod_mtu;
pub mod pods;
pub mod readiness;
pub mod report;
mod role;
pub mod switch;

pub use error::NodeError;
pub use role::{clean_up, run};

pub use options::{
    CniOptions, EXTERNAL_BRIDGE, Encapsulation, GatewayMode, GatewayOptions, INTEGRATION_BRIDGE, LiveSettings,
    MANAGEMENT_PORT, Options, OvnController,
};
