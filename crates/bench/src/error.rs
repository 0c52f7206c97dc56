//! Why something could not be measured or written down.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why something could not be measured or written down.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The name is none for a file.
    #[error("{name:?} cannot name a file of figures: use letters, digits, '-' and '_' alone")]
    FileName {
        /// The name as it was given.
        name: String,
    },
    /// There is no folder for figures.
    #[error("cannot tell where figures go: run inside the workspace, or set CARGO_TARGET_DIR")]
    NoFolder,
    /// A file of figures could not be written.
    #[error("cannot write {}: {source}: make the folder writable, or set CARGO_TARGET_DIR", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A CPU time could not be read.
    #[error("cannot read the CPU time from {path}: {problem}: is the process alive, and /proc mounted?")]
    Cpu {
        /// The file below /proc.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The fixed work of the calibration did not come out as it always does.
    #[error("the calibration did not run as it should: {problem}: mend it before comparing machines")]
    Calibration {
        /// What went wrong.
        problem: String,
    },
}
