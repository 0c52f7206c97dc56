//! Errors of measuring and of writing figures.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Errors of measuring and of writing figures.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The name would not be one file in the directory of figures.
    #[error("{name:?} is not a file name for figures: use only letters, digits, '-' and '_'")]
    FileName {
        /// As given.
        name: String,
    },
    /// No directory for figures.
    #[error("no directory for figures: run inside the workspace, or set CARGO_TARGET_DIR")]
    NoDirectory,
    /// A file of figures could not be written.
    #[error("cannot write {}: {source}: make the directory writable, or set CARGO_TARGET_DIR", path.display())]
    Write {
        /// Path of the file or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// CPU time or memory could not be read.
    #[error("cannot read CPU time or memory from {path}: {problem}; the process has exited, or /proc is not mounted")]
    Cpu {
        /// Path below /proc.
        path: String,
        /// Cause.
        problem: String,
    },
    /// The fixed work of the calibration had another result.
    #[error("calibration failed: {problem}: fix it before comparing machines")]
    Calibration {
        /// Cause.
        problem: String,
    },
}
