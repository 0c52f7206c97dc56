//! A node's gateway as data: what its external bridge, the host's packet filter and its routes shall be. No I/O: the node
//! agent carries it.
//!
//! ```text
//!  the host, its bridge, Services, host ports ──▶ flows of br-ex · nftables rules · routes and neighbours
//! ```
