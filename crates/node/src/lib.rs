//! The node agent: connects pods (CNI server), applies the gateway that the crate `gateway` computes, and reports the node's
//! state on its Node object.
//!
//! ```text
//!  runtime ──shim──▶ cni ──▶ kernel (netlink) + switch (Open vSwitch's database) ──ovn-controller──▶ installed ──▶ result
//!  Services, slices, nodes ──watches──▶ gateway ──▶ flows of br-ex, nftables, routes, the management port
//!  annotations, condition ◀── node_status          CNI configuration file ◀── cni::install
//! ```

mod certificate;
mod cluster_size;
mod cni;
mod condition;
mod daemon;
mod error;
mod gateway;
mod host_settings;
mod integration;
pub mod kernel;
mod node_status;
mod openflow_wire;
mod options;
mod ovn_controller;
mod own_node;
mod pod_mtu;
mod pods;
mod readiness;
mod role;
mod southbound_reconnect;
mod switch;

pub use error::NodeError;
pub use role::{clean_up, run};

pub use options::{
    CertificateOptions, CniOptions, EXTERNAL_BRIDGE, Encapsulation, GatewayOptions, INTEGRATION_BRIDGE, LiveSettings,
    MANAGEMENT_PORT, Options, OvnController,
};
