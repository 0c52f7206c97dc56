//! The controller's I/O: watches, databases, leader election and API writes around the reconciler of `topology`.
//!
//! ```text
//!  Kubernetes API ──watches──▶ ┌─────────────┐ ──commit──▶ Committer ──▶ northbound database
//!                              │ ControlLoop │ ◀──replica── sequence value visible: the next batch may be planned
//!  patches, Events, conditions │   Engine    │ ◀──progress── southbound database: nb_cfg of each chassis
//!           ◀────EffectRunner──└─────────────┘ ◀──acquired, lost── LeaderElection
//! ```
//!
//! One task owns the engine. It waits for the next event and holds no lock over I/O; API writes run concurrently, and a
//! slow one delays nothing else.

mod api_contact;
mod api_writer;
mod authorship;
mod binding_watch;
mod commit;
mod conditions;
mod connection_state;
mod control_loop;
mod databases;
mod effect_runner;
mod error;
mod leader_election;
mod leader_lock;
mod leader_proxy;
pub mod messages;
mod metrics;
mod node_watch;
mod northd;
mod northd_watch;
mod options;
mod ovn_release;
mod recorded_cluster;
mod release;
mod repairs;
mod role;
mod steal_lock;
mod watches;

pub use control_loop::run;
pub use error::ControllerError;
pub use options::{ElectionOptions, Options};
pub use release::{ReleaseError, ReleaseOptions, release_database};
