//! `lab disruption`: measures every scenario against its control.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::lab_options::LabOptions;
use super::print;
use crate::directories::{Directories, require_root};
use crate::disruption::{self, RunLength, Scenario, Testbed};
use crate::error::{Error, Result, create_dir, write_file};
use crate::interrupt;
use crate::lab::Lab;
use crate::ownership::has_owner;
use crate::probe::{RATE, Report};
use crate::progress::Progress;
use crate::record::Record;

/// The prober's pods are on two of them; the third one is deleted and added.
const NODES: u32 = 3;
/// Where `make bench` writes its figures.
const FIGURES: &str = "target/bench";

#[derive(Debug, Args)]
#[command(
    after_help = "A running lab of the given name is used as it is (it should have three nodes and raft databases); otherwise one is\n\
    started, and removed at the end. Each scenario is measured by the prober (`lab probe --help`): packets of all paths in\n\
    windows with the fault, compared with control windows of the same length.\n\
    Writes NAME.json (every incident) and NAME.svg of each scenario, summary.json, and\n\
    target/bench/disruption.json. Status 1 if one is worse than its control. Ctrl-C undoes the current fault.\n\n\
    Examples:\n  \
    lab disruption --name disruption --only agent-restart,northd-restart --short\n  \
    lab disruption --name disruption --write docs/disruption.md"
)]
pub(super) struct Options {
    /// Only these scenarios, by name; `--only list` lists them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// One short round of each
    #[arg(long)]
    short: bool,
    /// Packets per second, over all paths
    #[arg(long, default_value_t = RATE, value_parser = clap::value_parser!(u32).range(20..=20_000))]
    rate: u32,
    /// Directory for the reports
    #[arg(long, default_value = "target/disruption")]
    output: PathBuf,
    /// Write table and pictures into this page, between its two marker comments
    #[arg(long, value_name = "PAGE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    lab: LabOptions,
}

pub(super) fn run(directories: &Directories, name: &str, options: &Options) -> Result<ExitCode> {
    if options.only.as_slice() == ["list"] {
        for scenario in Scenario::all() {
            print(&format!("{:<24} {}\n", scenario.name, scenario.title))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let scenarios = if options.only.is_empty() {
        Scenario::all()
    } else {
        options.only.iter().map(|name| Scenario::named(name)).collect::<Result<Vec<_>>>()?
    };
    require_root("lab disruption")?;
    interrupt::install_handlers()?;
    // Fail now rather than after an hour if the results cannot be written.
    create_dir(&options.output)?;
    if let Some(page) = &options.write {
        disruption::check_page(page)?;
    }
    let progress = Progress::to_stderr();
    let own;
    let testbed = if has_owner(directories, name) {
        let record = Record::load(directories, name)?;
        record.require_pod_network()?;
        Testbed::kept(directories, record)
    } else {
        own = Lab::start_in(directories.clone(), options.lab.spec(name, NODES)?, progress.clone())?;
        Testbed::of(&own)
    };
    let labelled = progress.step("second controller", || testbed.prepare())?;
    let length = if options.short { RunLength::Short } else { RunLength::Full };
    let reports = disruption::run(&testbed, &scenarios, options.rate, length, &options.output, &progress);
    let restored = testbed.restore(labelled.as_deref());
    let reports = reports?;
    restored?;
    for (_, report) in &reports {
        print(&format!("\n{}", report.table(console::table::colour())))?;
    }
    let rows = disruption::rows(&options.output, &reports)?;
    let figures =
        serde_json::to_string_pretty(&disruption::figures(&rows)).map_err(|error| Error::Invalid(error.to_string()))?;
    create_dir(Path::new(FIGURES))?;
    write_file(&Path::new(FIGURES).join("disruption.json"), figures)?;
    if let Some(page) = &options.write {
        disruption::write_page(page, &options.output, &rows)?;
    }
    print(&summary(&reports, options))?;
    let missing = scenarios.len() - reports.len();
    if missing > 0 {
        return Err(Error::Invalid(format!("{missing} scenarios could not be measured; see the lines above")));
    }
    let good = reports.iter().all(|(_, report)| report.ok);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The last lines: how many scenarios were worse than their controls, and where the files are.
fn summary(reports: &[(Scenario, Report)], options: &Options) -> String {
    let worse: Vec<&str> = reports.iter().filter(|(_, report)| !report.ok).map(|(scenario, _)| scenario.name).collect();
    let mut text = format!("{} scenarios, {} no worse than the control", reports.len(), reports.len() - worse.len());
    if !worse.is_empty() {
        text.push_str(&format!("; worse or unusable: {}", worse.join(", ")));
    }
    let dir = options.output.display();
    text.push_str(&format!("\nreports: {dir}/NAME.json, NAME.svg, summary.json; figures: {FIGURES}/disruption.json"));
    if let Some(page) = &options.write {
        text.push_str(&format!("; page: {}", page.display()));
    }
    text.push('\n');
    text
}
