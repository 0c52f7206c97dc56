//! The controller's reconciler: the northbound rows as a function of Kubernetes objects. Pure: no I/O, no clock.
//!
//! ```text
//!  facts ──▶ store ──allocation──▶ addresses, node IDs ──desired──▶ contributions ──ledger──▶ touched rows
//!                                                                                              │ plan, against
//!  annotations, Events, conditions ◀──effects── engine ◀──committed/refused── one transaction ◀┘ the snapshot
//! ```
//!
//! - [`store`]: the facts of all objects, with the indexes that say which owners a change affects.
//! - [`allocation`]: subnets, node IDs and addresses, with their quarantine; the only part with history.
//! - [`desired`]: the rows of each owner; a module for each kind.
//! - [`selector`], [`rules`]: policies, compiled into selectors and clauses.
//! - [`services`]: addresses and endpoint selection of Services, for the controller and the node agents alike.
//! - [`identity`], [`contribution`], `ledger`: owners, their rows, and members of shared sets.
//! - [`plan`]: differences to the database as operations.
//! - [`engine`]: queue, batches, effects.
//! - [`refusal`]: why an object is parked.
//! - [`watchdog`]: nodes without heartbeats, chassis that lag; [`pacing`]: intervals by cluster size.
//! - [`port_bindings`]: chassis that claim ports of other nodes.
//! - [`adopt`]: takes over the rows of another controller; [`release`]: hands them back.

pub mod adopt;
pub mod allocation;
mod annotations;
pub mod contribution;
pub mod desired;
pub mod engine;
mod former_identities;
pub mod identity;
mod ledger;
mod levels;
pub mod maps;
pub mod pacing;
pub mod plan;
pub mod port_bindings;
pub mod refusal;
pub mod release;
pub mod rules;
pub mod selector;
pub mod services;
pub mod settings;
pub mod store;
pub mod watchdog;

pub use engine::{Effect, Engine, Observed};
pub use settings::ClusterSettings;
