//! The command line, and which checks it asks for.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::finding::{Output, Report};
use crate::policy::Policy;
use crate::workspace::Workspace;
use crate::{HouseError, layout, purity};

/// Check that the workspace keeps to its architecture. Without a command, run every check.
#[derive(Debug, Parser)]
#[command(
    name = "house",
    version,
    after_help = "Exit code: 0 all checks hold, 1 some do not, 2 they could not be run."
)]
pub struct Cli {
    /// The check to run; all of them without one.
    #[command(subcommand)]
    pub check: Option<Check>,
    /// The workspace's Cargo.toml; by default the one that cargo finds from here.
    #[arg(long, global = true, value_name = "PATH")]
    pub manifest_path: Option<PathBuf>,
    /// How to print the findings.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Human)]
    pub output: Output,
}

/// One of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Check {
    /// Pure crates stand only on what house.toml allows them.
    Purity,
    /// Files are small, crates say what they are for, nothing names one machine.
    Layout,
}

/// Runs the checks that were asked for.
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
