//! Network values: prefixes, interface addresses, MAC addresses; and pools that allocate them.
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
//! Everything here is pure: no I/O, no clock, no randomness. The same input gives the same value on every machine.
//! Values are small and `Copy`, sort as networks do, and serialize as the text that operators write. Only pools have
//! state: they are filled with claims of existing values, and from then on depend only on their history.
//!
//! ```
//! use netmodel::{AddressPool, ClusterCidr, Family, Mac, SubnetPool};
//!
//! // The cluster's network, from which each node gets a /23.
//! let cluster: ClusterCidr = "10.128.0.0/14/23".parse()?;
//! let mut subnets = SubnetPool::new(&[cluster])?;
//! let node = subnets.allocate().expect("a free subnet");
//! assert_eq!((node.to_string().as_str(), node.family()), ("10.128.0.0/23", Family::V4));
//!
//! // A restart claims what pods have already; the next address follows the last one that was allocated.
//! let mut addresses = AddressPool::new(node);
//! addresses.claim("10.128.0.3".parse()?)?;
//! let pod = addresses.allocate().expect("a free address");
//! assert_eq!(pod.to_string(), "10.128.0.4");
//! assert_eq!(Mac::for_address(pod).to_string(), "0a:58:0a:80:00:04");
//!
//! // A released address is quarantined while peers may still send to it.
//! assert!(addresses.quarantine(pod) && addresses.claim(pod).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
