//! OVN's northbound and southbound databases as raft clusters that stay alive.
//!
//! ```text
//!   file, staging file ─┐
//!   record in the API ──┼─▶ bootstrap::next (pure) ──▶ ovsdb-tool ──▶ ovsdb-server
//!   address, peers ─────┘                                              │ cluster/status
//!                         care::{actions, findings} (pure) ◀───────────┘
//!                            │ kick, election timer      └──▶ log, Events, metrics, readiness
//!                            └──▶ control socket
//! ```
//!
//! Each member has one manager process beside its ovsdb-server. Managers do not talk to each other: which cluster is the
//! right one is recorded in the Kubernetes API ([`record`]), and what concerns the whole cluster is done by the manager of
//! the raft leader.

pub mod bootstrap;
pub mod care;
pub mod directory;
mod disk;
mod error;
pub mod file;
pub mod inspect;
pub mod kind;
mod manager;
mod metrics;
mod options;
mod prepare;
pub mod record;
pub mod replace;
pub mod status;
pub mod store;

pub use error::DatabaseError;
pub use kind::Kind;
pub use manager::run;
pub use options::{Options, Peers};
