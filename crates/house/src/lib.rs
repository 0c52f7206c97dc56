//! The checks that keep the architecture true, so that it cannot erode one commit at a time.
//!
//! ```text
//!  house.toml ──Policy──┐
//!  cargo tree ──Graph───┴─▶ purity ─┐
//!  cargo metadata ─Workspace─▶──────┼─▶ Report ──▶ text for people, JSON for tools, exit code
//!  git ls-files ───────────▶ layout ┘
//! ```
//!
//! *Purity*: the core has no runtime, no socket, no Kubernetes client. Each pure crate has a list of everything it may
//! stand on; whatever else turns up in its dependency graph is an error, with the chain by which it came in.
//!
//! *Layout*: small files, a small `main.rs`, crates that say what they are for, one set of lints, one license, and no
//! names that belong to one machine.
//!
//! A check never stops at the first finding, and every finding names a place and a remedy.

mod cli;
mod error;
mod finding;
mod graph;
mod layout;
mod policy;
mod purity;
mod wording;
mod workspace;

pub use cli::{Check, Cli, run};
pub use error::HouseError;
pub use finding::{Finding, Level, Output, Report};
