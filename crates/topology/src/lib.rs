//! The logical network as a function of Kubernetes objects. Pure: no runtime, no client, no socket, no clock.
//!
//! ```text
//!  JSON ──objects──▶ facts ──▶ store ──allocation──▶ who has what ──desired──▶ contributions ──ledger──▶ touched
//!                                                                                                      │ plan, against
//!  annotations, Events, conditions ◀──effects── engine ◀──committed/refused── one transaction ◀────────┘ the snapshot
//! ```
//!
//! - [`objects`]: what we need to know of a Pod, Node, Namespace; the annotations.
//! - [`allocation`]: subnets, numbers and addresses: given once, honoured, at rest until every node has forgotten them.
//! - [`desired`]: what the network owes each object; a module for each kind of owner.
//! - [`selector`], [`rules`]: whom policies speak of, and what they say, as clauses.
//! - [`contribution`], [`ledger`]: rows of one owner, members of sets that many share.
//! - [`services`]: what each Service gets where, for the controller and the agents alike.
//! - [`plan`]: differences to the database as operations.
//! - [`engine`]: the one writer's mind: queue, batches, follow-ups.
//! - [`reach`]: where a packet ends, read off those rows.
//! - [`can`]: whether one may talk to another, and what decides it.
//! - [`preview`]: what objects would make of a database, found out in memory.
//! - [`watchdog`]: nodes whose agent went silent, chassis that lag behind; [`pacing`]: intervals by cluster size.
//! - [`adopt`]: rows of another controller, taken over by their names.
//! - [`release`]: the database is left to another controller.

pub mod adopt;
pub mod allocation;
mod annotations;
pub mod contribution;
pub mod desired;
pub mod engine;
pub mod identity;
pub mod ledger;
mod levels;
pub mod maps;
pub mod pacing;
pub mod plan;
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
