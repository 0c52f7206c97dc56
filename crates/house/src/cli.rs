//! The command line, and the checks that it selects.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::finding::{Output, Report};
use crate::policy::Policy;
use crate::workspace::Workspace;
use crate::{HouseError, layout, purity};

/// Check the rules of the repository. Without a command, run every check.
#[derive(Debug, Parser)]
#[command(
    name = "house",
    version,
    after_help = "Exit code: 0 all checks pass, 1 a check failed, 2 the checks could not run."
)]
pub struct Cli {
    /// The check to run (default: all).
    #[command(subcommand)]
    pub check: Option<Check>,
    /// The workspace's Cargo.toml (default: the one that cargo finds from the current directory).
    #[arg(long, global = true, value_name = "PATH")]
    pub manifest_path: Option<PathBuf>,
    /// How findings are printed.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Human)]
    pub output: Output,
}

/// The checks that can be run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Check {
    /// Pure crates depend only on what house.toml allows.
    Purity,
    /// Files are small; crates open with their purpose, and share lints and license; the Makefile lists every test program.
    Layout,
}

/// Runs the selected checks. Blocks: it starts `cargo` and `git`.
pub fn run(cli: &Cli) -> Result<Report, HouseError> {
    let workspace = Workspace::load(cli.manifest_path.as_deref())?;
    let mut report = Report::default();
    if cli.check != Some(Check::Layout) {
        let policy = Policy::load(&workspace.root)?;
        report.add("purity", purity::check(&workspace, &policy)?);
    }
    if cli.check != Some(Check::Purity) {
        report.add("layout", layout::check(&workspace)?);
    }
    Ok(report)
}
