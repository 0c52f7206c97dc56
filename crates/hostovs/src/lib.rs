//! The host's Open vSwitch, run by systemd, as data: what its units need, what its log files
//! contain, which settings differ.
//!
//! ```text
//!  states of units ──▶ units::Supervisor ──▶ actions (enable, start), findings with remedies
//!  processes ────────▶ processes ──────────▶ other ovs-vswitchds
//!  sizes, bytes ─────▶ logs::Follower ─────▶ lines, each once; a record to resume from
//!  ConfigMap ────────▶ settings ───────────▶ changes of other_config and log levels, refusals
//! ```
//!
//! No I/O and no clock: the caller observes and acts.

pub mod logs;
pub mod processes;
pub mod settings;
pub mod units;
