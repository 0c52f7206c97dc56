//! The network as plain values: prefixes, interface addresses and MAC addresses; and pools that give them out.
//!
//! ```text
//!  "10.128.0.0/14" ──parse──▶ Prefix ──subnets(23)──▶ Prefix (one a node)
//!                               │                       │ nth(n)           ──▶ IpAddr ──Mac::for_address──▶ Mac
//!                               │                       └ nth_interface(n) ──▶ InterfaceAddress "10.130.0.5/23"
//!                               └ check_disjoint: the networks of a configuration share no address
//!
//!  "10.128.0.0/14/23" ──parse──▶ ClusterCidr ──▶ SubnetPool ──allocate──▶ Prefix (one a node)
//!                                                                           └─▶ AddressPool ──allocate──▶ IpAddr (one a pod)
//!                                                  1..=4095 ──▶ IdPool ──allocate──▶ u32
//! ```
//!
//! Everything here is pure: no I/O, no clock, no randomness. The same input gives the same value on every machine, so
//! whoever computes an address or a MAC twice gets it twice the same. Values are small and `Copy`, order as networks
//! do, and travel through serde as the text that operators write. A pool is the one thing with a memory: it is filled
//! by claims of what exists and from then on answers by its history alone.

mod address_pool;
mod bits;
mod cluster_cidr;
mod disjoint;
mod error;
mod family;
mod gateway_mode;
mod id_pool;
mod interface;
mod mac;
mod masquerade;
mod prefix;
mod subnet_pool;

pub use address_pool::{AddressPool, ClaimError};
pub use cluster_cidr::ClusterCidr;
pub use disjoint::{OverlapError, check_disjoint};
pub use error::{AddressError, ClusterCidrError, MacError};
pub use family::Family;
pub use gateway_mode::{GatewayMode, GatewayModeError};
pub use id_pool::{IdError, IdPool};
pub use interface::InterfaceAddress;
pub use mac::Mac;
pub use masquerade::Masquerade;
pub use prefix::{Prefix, Subnets};
pub use subnet_pool::{SubnetClaimError, SubnetPool, SubnetPoolError};
