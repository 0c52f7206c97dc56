//! Settings of Open vSwitch: parsed from a ConfigMap's data, merged for a node, and compared with what the host has.
//!
//! ```text
//!  other_config.flow-limit: "400000"            a key of Open_vSwitch.other_config
//!  log.ovs-vswitchd.bridge.file: dbg            log.DAEMON.MODULE.SINK; `any` for all modules
//!  override.10-storage: |                       for nodes with these labels; later names win
//!    nodes: zone in (a, b), !spot
//!    other_config.flow-limit: 800000
//!    other_config.max-idle: default             not set on these nodes
//! ```
//!
//! A refused line does not affect others; what it set before stays.

mod key;
mod merge;
mod plan;
mod selector;

pub use key::{Level, Setting, Sink};
pub use merge::{Desired, Refusal, desired};
pub use plan::{LevelChange, Levels, Observed, Plan, RECORD, parse_levels, plan};
pub use selector::{Selector, SelectorError};

#[cfg(test)]
mod tests;
