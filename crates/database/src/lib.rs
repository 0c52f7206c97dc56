//! OVN's northbound and southbound databases as raft clusters that stay alive. [`active_backup`] is the other form: one server
//! of several is active.
//!
//! ```text
//!   file, staging file ─┐
//!   record in the API ──┼─▶ bootstrap::next (pure) ──▶ ovsdb-tool ──▶ ovsdb-server
//!   address, peers ─────┘                                              │ cluster/status
//!                      maintenance::actions, assess (pure) ◀──────────┘
//!                            │ kick, election timer      └──▶ findings: log, Events, metrics, `db status`
//!                            └──▶ control socket
//! ```
//!
//! Each member has one manager process alongside its ovsdb-server. Managers do not talk to each other: which cluster is the
//! right one is recorded in the Kubernetes API (`record`), and what concerns the whole cluster is done by the manager of
//! the raft leader.

pub mod active_backup;
mod assess;
pub mod backup;
mod bootstrap;
mod checks;
mod clock;
mod control;
mod details;
mod directory;
mod disk;
mod disk_check;
mod error;
mod file;
mod file_cache;
mod finding;
mod former;
mod identity_checks;
mod image;
pub mod inspect;
mod kind;
mod leadership;
mod live_file;
mod maintenance;
mod manager;
mod manager_lock;
pub mod manager_status;
mod member_page;
mod metrics;
pub mod names;
mod node_listener;
mod options;
mod prepare;
mod process;
mod raft_log;
mod record;
mod relay;
pub mod rename;
pub mod replace;
mod report;
mod server_config;
pub mod status;
pub mod store;
mod verify;
mod version;

pub use error::DatabaseError;
pub use kind::Kind;
pub use maintenance::GONE;
pub use manager::run;
pub use options::{NodeAccess, Options, Peers};
pub use raft_log::LogError;
pub use relay::{RelayOptions, UpstreamService, run_relay};
