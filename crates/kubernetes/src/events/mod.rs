//! Kubernetes Events: reported to the users of an object, without blocking the caller.
//!
//! ```text
//!   record() ──never waits──▶ Queue (bounded, equal ones counted, oldest dropped) ──task, at a pace──▶ POST or PATCH
//! ```

mod note;
mod queue;
mod recorder;

pub use note::{Note, ObjectReference, Severity};
pub use recorder::Recorder;
