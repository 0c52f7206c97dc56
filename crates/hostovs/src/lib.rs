//! The host's Open vSwitch, run by systemd, as data: what its units need, and what its log
//! files contain.
//!
//! ```text
//!  states of units ──▶ units::Supervisor ──▶ actions (enable, start), findings with remedies
//!  processes ────────▶ processes ──────────▶ other ovs-vswitchds
//!  sizes, bytes ─────▶ logs::Follower ─────▶ lines, each once; a record to resume from
//! ```
//!
//! No I/O and no clock: the caller observes and acts.

pub mod logs;
pub mod processes;
pub mod units;
