//! Why a check could not run at all. A check that ran and failed reports a finding instead.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a check could not run.
#[derive(Debug, Error)]
pub enum HouseError {
    /// A file could not be read.
    #[error("cannot read {}: {source}: make it readable, or run house from inside the workspace", path.display())]
    Read {
        /// Path as it was opened.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A TOML file is invalid.
    #[error("invalid {}: {problem}", path.display())]
    Toml {
        /// Path as it was opened.
        path: PathBuf,
        /// The parser's message, with the line.
        problem: String,
    },
    /// A program that a check needs could not be started.
    #[error("cannot run {program}: {source}: install it, or put it on PATH")]
    Start {
        /// As it is looked up on PATH.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// A program that a check needs failed.
    #[error("`{command}` failed: {problem}: correct that, or run `cargo fetch` if a crate is missing")]
    Failed {
        /// With its arguments.
        command: String,
        /// Its standard error, in one line.
        problem: String,
    },
    /// A program printed something else than it documents.
    #[error("unexpected output of `{command}` ({problem}): adapt house to this version of the program")]
    UnexpectedOutput {
        /// With its arguments.
        command: String,
        /// The part that could not be parsed.
        problem: String,
    },
}
