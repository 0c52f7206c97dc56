//! Why a check could not be run at all. A check that ran and found something reports a finding instead.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a check could not be run.
#[derive(Debug, Error)]
pub enum HouseError {
    /// A file could not be read.
    #[error("cannot read {}: {source}: make it readable, or run house from inside the workspace", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A TOML file does not say what it should.
    #[error("{} is not understood: {problem}: correct it there", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its place in the file.
        problem: String,
    },
    /// A program that a check needs could not be started.
    #[error("cannot run {program}: {source}: install it, or put it on PATH")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program that a check needs failed.
    #[error("`{command}` failed: {problem}: correct that, or run `cargo fetch` if a crate is missing")]
    Failed {
        /// The command line.
        command: String,
        /// What it said, in one line.
        problem: String,
    },
    /// A program answered something else than it documents.
    #[error(
        "`{command}` gave an answer that house does not understand ({problem}): house must learn this version of it"
    )]
    Answer {
        /// The command line.
        command: String,
        /// What was not understood.
        problem: String,
    },
}
