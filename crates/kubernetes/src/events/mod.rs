//! Events of Kubernetes: what a user of the cluster sees of our work and of its own mistakes.
//!
//! ```text
//!   record() ──never waits──▶ Queue (bounded, equal ones counted, oldest dropped) ──task, at a pace──▶ POST or PATCH
//! ```

mod note;
mod queue;
mod recorder;

pub use note::{Note, ObjectReference, Severity};
pub use recorder::Recorder;
