//! `lab conformance`: Kubernetes' e2e tests and network-policy-api's conformance suite, on a lab with ovnkube.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::lab_options::LabOptions;
use super::print;
use crate::conformance::{self, Artifacts, Options as RunOptions, Selection, SpecSet};
use crate::directories::{Directories, require_root};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::ownership::has_owner;
use crate::progress::Progress;
use crate::record::Record;
use crate::spec::Family;

#[derive(Debug, Args)]
#[command(
    after_help = "A running lab of the given name is used as it is; otherwise one is started, and removed at the \
    end.\nStatus 1 if a spec failed. No spec is retried.\n\n\
    Examples:\n  \
    lab conformance --name conformance\n  \
    lab conformance --name conformance --which all --family dual --gateway local\n  \
    lab conformance --focus 'Services should serve'\n  \
    lab conformance --nodes 6 --focus 'Traffic Distribution'\n  \
    lab conformance --which policy-api --focus 'AdminNetworkPolicyGress/allow-gress'"
)]
pub(super) struct Options {
    /// Set of specs to run
    #[arg(long, value_enum, default_value = "network")]
    which: SpecSet,
    /// Only specs whose full name matches this regular expression; all if empty. With policy-api as in `go test -run`:
    /// one expression for the test and, after a slash, one for its subtests. With all, only Kubernetes' specs are run
    /// then
    #[arg(long)]
    focus: Option<String>,
    /// Number of specs to run in parallel; those of policy-api run one by one
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Directory for the reports
    #[arg(long, default_value = "target/conformance")]
    output: PathBuf,
    /// Number of nodes of a new lab, spread over three zones; many specs need three, a few topology specs six
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=12))]
    nodes: u32,
    /// Address families of a new lab
    #[arg(long, value_enum, default_value = "v4")]
    family: Family,
    #[command(flatten)]
    lab: LabOptions,
}

pub(super) fn run(directories: &Directories, name: &str, options: &Options) -> Result<ExitCode> {
    require_root("lab conformance")?;
    let progress = Progress::to_stderr();
    let artifacts = Artifacts::ensure(directories, options.lab.suite(), &progress)?;
    let run_options = RunOptions {
        selection: Selection { set: options.which, focus: options.focus.clone().filter(|focus| !focus.is_empty()) },
        processes: options.processes,
        output: options.output.clone(),
    };
    let mut own = None;
    let record = if has_owner(directories, name) {
        Record::load(directories, name)?
    } else {
        let spec = options.lab.spec(name, options.nodes)?.family(options.family);
        own.insert(Lab::start_in(directories.clone(), spec, progress.clone())?).record()
    };
    let report = conformance::run(directories, &record, &artifacts, &run_options, &progress)?;
    drop(own);
    print(&format!(
        "\n{}\n{} ({})\n",
        report.table(console::table::colour()),
        report.summary(),
        options.output.display()
    ))?;
    if report.ran_no_spec() {
        let focus = options.focus.as_deref().filter(|focus| !focus.is_empty());
        let focus = focus.map_or_else(String::new, |focus| format!(" whose name matches {focus:?}"));
        let message = format!("no spec{focus} was run; see the logs in {}", options.output.display());
        return Err(Error::Invalid(message));
    }
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
