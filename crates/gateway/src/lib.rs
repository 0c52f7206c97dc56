//! A node's gateway as data: what its external bridge, the host's packet filter and its routes shall be. No I/O: the node
//! agent carries it.
//!
//! ```text
//!  the host, its bridge, Services, host ports ──▶ flows of br-ex · nftables rules · routes and neighbours
//! ```

mod facts;
mod filter;
mod flow;
mod flows;
mod host;
mod mtu;
mod text;

pub use facts::{Bridge, Exposed, Facts, Mode, Network, Place, Protocol};
pub use filter::{SHIELD, TABLE, filter, filter_fingerprint};
pub use flow::{COOKIE, COOKIE_MASK, Flow, FlowChange, Installed};
pub use flows::flows;
pub use host::{Device, HostPlan, Neighbour, Route, Sysctl, host};
pub use mtu::{MtuError, check_mtu};
