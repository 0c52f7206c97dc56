//! A database as standalone servers, of which one is active and the others replicate from it.
//!
//! ```text
//!   file, marker ─┐                                  Lease: which manager may make its server active
//!   record ───────┴─▶ files::next (pure) ──▶ ovsdb-server, read-only, on a local socket only
//!                                               │ Lease acquired          │ EndpointSlice names another server
//!                                               ▼                         ▼
//!                            active: writable, listens, published      backup: replicates from it
//! ```
//!
//! Only the active server listens for other hosts. So no client writes to another one, and no backup replicates from a
//! server that lost its data.
//!
//! Replication is asynchronous: what the active server acknowledged and no backup has yet is lost with it. A member competes
//! for the Lease only if it has had all data of an active server once: its marker says so.

mod active;
mod backup;
mod confirmation;
mod conversion;
mod files;
mod freshness;
mod manager;
mod marker;
mod metrics;
mod publish;
mod server;
mod supervision;

pub use files::{BootstrapInputs, Problem, Step, next};
pub use manager::run;
pub use marker::{Marker, is_member};
