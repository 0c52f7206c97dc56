//! The network as plain values: prefixes, interface addresses and MAC addresses.
//!
//! ```text
//!  "10.128.0.0/14" ──parse──▶ Prefix ──subnets(23)──▶ Prefix (one a node)
//!                                                       │ nth(n)           ──▶ IpAddr ──Mac::for_address──▶ Mac
//!                                                       └ nth_interface(n) ──▶ InterfaceAddress "10.130.0.5/23"
//! ```
//!
//! Everything here is pure: no I/O, no clock, no randomness. The same input gives the same value on every machine, so
//! whoever computes an address or a MAC twice gets it twice the same. Values are small and `Copy`, order as networks
//! do, and travel through serde as the text that operators write.

mod error;
mod interface;
mod mac;
mod prefix;

pub use error::{AddressError, MacError};
pub use interface::InterfaceAddress;
pub use mac::Mac;
pub use prefix::{Prefix, Subnets};
