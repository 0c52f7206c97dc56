//! Desired state of a node's gateway, as data: flows of the external bridge, nftables rules, routes of the host. No I/O: the
//! node agent applies it.
//!
//! ```text
//!  the host, its bridge, Services, host ports ──▶ flows of br-ex · nftables rules · routes and neighbours
//! ```

mod facts;
mod filter;
mod fingerprint;
mod flow;
mod flows;
mod host;
mod mtu;

pub use facts::{Bridge, ExposedPort, Facts, ListenAddress, Network, Protocol};
pub use filter::{TABLE, UPLINK_TABLE, filter, filter_fingerprint};
pub use flow::{COOKIE, COOKIE_MASK, Flow, FlowChange, Installed};
pub use flows::flows;
pub use host::{Device, HostPlan, Neighbour, Route, Sysctl, host};
pub use mtu::{MtuError, check_mtu};
