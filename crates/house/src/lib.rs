//! Checks of the repository's rules, run by `make check`: dependencies of pure crates, layout of the workspace.
//!
//! ```text
//!  house.toml ──Policy──┐
//!  cargo tree ──Graph───┴─▶ purity ─┐
//!  cargo metadata ─Workspace─▶──────┼─▶ Report ──▶ text for people, JSON for tools, exit code
//!  git ls-files ───────────▶ layout ┘
//! ```
//!
//! *Purity*: the core has no runtime, no socket, no Kubernetes client. Each pure crate has a list of everything it may
//! depend on; anything else in its dependency graph is an error, reported with the chain that brought it in.
//!
//! *Layout*: small files, a small `main.rs`, crates that open with their purpose, one set of lints and one license, and
//! every test program in one of the Makefile's lists.
//!
//! A check never stops at the first finding; every finding names its location and a remedy.

mod cli;
mod error;
mod finding;
mod graph;
mod layout;
mod policy;
mod purity;
mod test_lists;
mod test_times;
mod workspace;

pub use cli::{Check, Cli, run};
pub use error::HouseError;
pub use finding::{Finding, Level, Output, Report};
pub use test_times::{TestTime, TestTimes};
