//! The controller's edges. What the network shall be is decided in `topology`, which knows no runtime; here it is carried.
//!
//! ```text
//!  Kubernetes API ──watches──▶ ┌────────┐ ──commit──▶ Committer ──▶ northbound database
//!                              │ Pilot  │ ◀──replica── sequence value seen: the next batch may be planned
//!  patches, Events, conditions │ Engine │ ◀──progress── southbound database: what each chassis has reached
//!           ◀──────────────────└────────┘ ◀──acquired, lost── campaign for the Lease
//! ```
//!
//! One task owns the engine. It waits for whatever happens first and holds no lock over I/O; API writes run beside it,
//! many at a time, and a slow one keeps nobody waiting.

mod authorship;
mod campaign;
mod commit;
mod databases;
mod error;
mod leader_lock;
mod link;
mod metrics;
mod node_watch;
mod northd;
mod northd_watch;
mod options;
mod outlet;
mod patches;
mod pilot;
mod release;
mod repairs;
mod role;
mod watches;

pub use error::ControllerError;
pub use options::{DatabaseAccess, ElectionOptions, Options};
pub use pilot::run;
pub use release::{ReleaseError, ReleaseOptions, release_database};
