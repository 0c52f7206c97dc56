//! Addresses of OVN's databases: the configured ones, and the members that the EndpointSlices of a Service name.
//!
//! ```text
//!   [ovnnorth] address ───────────────▶ until the API has named a member; connection method and port of all members
//!   EndpointSlices ──watch──▶ Slices ──▶ ListedHosts ──▶ channel ──▶ OVSDB clients, ovn-remote, protected addresses
//!                             └────────── pure ────────┘
//! ```
//!
//! A list never becomes empty: without members in the API the last one stays.

mod access;
mod follow;
mod listed_hosts;
mod servers;
mod slices;

pub use access::{DatabaseAccess, Service, ServiceError, hosts};
pub use follow::{RemoteUpdates, endpoint_hosts, follow, published, resolve};
pub use servers::Servers;
pub use slices::MANAGED_BY;
