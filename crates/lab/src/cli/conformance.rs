//! `lab conformance`: Kubernetes' own tests, and network-policy-api's, on a lab with our network.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::own_lab::OwnLab;
use super::say;
use crate::conformance::{self, Options as RunOptions, Selection, Supplies, Which};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::ownership::has_owner;
use crate::place::{Place, require_root};
use crate::progress::Progress;
use crate::record::Record;
use crate::spec::Family;

#[derive(Debug, Args)]
#[command(after_help = "A lab of the given name that runs is used as it is; else one is started, and removed at the \
    end.\nstatus 1 if a spec failed. No spec is repeated.\n\n\
    Examples:\n  \
    lab conformance --name conformance\n  \
    lab conformance --name conformance --which all --family dual --gateway local\n  \
    lab conformance --focus 'Services should serve'\n  \
    lab conformance --nodes 6 --focus 'Traffic Distribution'\n  \
    lab conformance --which policy-api --focus 'AdminNetworkPolicyGress/allow-gress'")]
pub(super) struct Options {
    /// Which specs
    #[arg(long, value_enum, default_value = "network")]
    which: Which,
    /// Only specs whose full name matches this regular expression; all if empty. With policy-api as Go's -run takes it:
    /// one for the test and, after a slash, one for its sub-tests. With all, only Kubernetes' specs are run then
    #[arg(long)]
    focus: Option<String>,
    /// How many specs at the same time; those of policy-api run one by one
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Where the reports go
    #[arg(long, default_value = "target/conformance")]
    output: PathBuf,
    /// The nodes of a lab that is started, in three zones by turns; many specs want three, a few of topology six
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=12))]
    nodes: u32,
    /// The address families of a lab that is started
    #[arg(long, value_enum, default_value = "v4")]
    family: Family,
    #[command(flatten)]
    own: OwnLab,
}

pub(super) fn run(place: &Place, name: &str, options: &Options) -> Result<ExitCode> {
    require_root("lab conformance")?;
    let progress = Progress::for_people();
    let supplies = Supplies::ensure(place, options.own.suite, &progress)?;
    let run_options = RunOptions {
        selection: Selection { which: options.which, focus: options.focus.clone().filter(|focus| !focus.is_empty()) },
        processes: options.processes,
        output: options.output.clone(),
    };
    let mut own = None;
    let record = if has_owner(place, name) {
        Record::load(place, name)?
    } else {
        let spec = options.own.spec(name, options.nodes)?.family(options.family);
        own.insert(Lab::start_in(place.clone(), spec, progress.clone())?).record()
    };
    let report = conformance::run(place, &record, &supplies, &run_options, &progress)?;
    drop(own);
    say(&format!(
        "\n{}\n{} ({})\n",
        report.table(console::table::colour()),
        report.summary(),
        options.output.display()
    ))?;
    if report.ran_nothing() {
        let focus = options.focus.as_deref().filter(|focus| !focus.is_empty());
        let focus = focus.map_or_else(String::new, |focus| format!(" whose name matches {focus:?}"));
        let message = format!("no spec{focus} was run; the logs in {} say why", options.output.display());
        return Err(Error::Invalid(message));
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
