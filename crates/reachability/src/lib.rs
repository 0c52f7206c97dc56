//! What objects would change, and whether a packet would arrive, computed without a cluster. Pure: no I/O.
//!
//! ```text
//!  objects ──preview──▶ rows ──differences──▶ what would be created, changed, deleted
//!                        │ └──trace──▶ where a packet ends, by following the rows
//!                        └──evaluator──▶ whether a packet arrives, and which rule decides
//! ```

pub mod evaluator;
pub mod preview;
pub mod trace;
