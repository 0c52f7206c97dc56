//! `lab disruption`: every scenario, measured beside its control.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::own_lab::OwnLab;
use super::say;
use crate::disruption::{self, Form, Scenario, Testbed};
use crate::error::{Error, Result, make_dir, write_file};
use crate::interrupt;
use crate::lab::Lab;
use crate::ownership::has_owner;
use crate::place::{Place, require_root};
use crate::probe::{RATE, Report};
use crate::progress::Progress;
use crate::record::Record;

/// The prober's pods are on two of them; the third is deleted and added.
const NODES: u32 = 3;
/// Where `make bench` keeps its figures.
const FIGURES: &str = "target/bench";

#[derive(Debug, Args)]
#[command(
    after_help = "A lab of the given name that runs is used as it is (it should have three nodes and databases with raft); else one is\n\
    started, and removed at the end. Each scenario is measured by the prober (`lab probe --help`): packets of all paths in\n\
    windows with the fault, beside as many seconds without it.\n\
    Writes NAME.json (every packet that something went wrong with) and NAME.svg of each scenario, summary.json, and\n\
    target/bench/disruption.json. Status 1 if one is worse than its control. Ctrl-C undoes the fault that is in place.\n\n\
    Examples:\n  \
    lab disruption --name disruption --only agent-restart,northd-restart --short\n  \
    lab disruption --name disruption --write docs/disruption.md"
)]
pub(super) struct Options {
    /// Only these scenarios, by name; `--only list` lists them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// One brief round of each
    #[arg(long)]
    short: bool,
    /// Packets per second, all paths together
    #[arg(long, default_value_t = RATE, value_parser = clap::value_parser!(u32).range(20..=20_000))]
    rate: u32,
    /// Where the reports go
    #[arg(long, default_value = "target/disruption")]
    output: PathBuf,
    /// A page that gets table and pictures, between two comments that it has
    #[arg(long, value_name = "PAGE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    own: OwnLab,
}

pub(super) fn run(place: &Place, name: &str, options: &Options) -> Result<ExitCode> {
    if options.only.as_slice() == ["list"] {
        for scenario in Scenario::all() {
            say(&format!("{:<24} {}\n", scenario.name, scenario.title))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let scenarios = if options.only.is_empty() {
        Scenario::all()
    } else {
        options.only.iter().map(|name| Scenario::named(name)).collect::<Result<Vec<_>>>()?
    };
    require_root("lab disruption")?;
    interrupt::handle()?;
    // What cannot be written is known before an hour of measuring.
    make_dir(&options.output)?;
    if let Some(page) = &options.write {
        disruption::check_page(page)?;
    }
    let progress = Progress::for_people();
    let own;
    let testbed = if has_owner(place, name) {
        let record = Record::load(place, name)?;
        record.require_pod_network()?;
        Testbed::kept(place, record)
    } else {
        own = Lab::start_in(place.clone(), options.own.spec(name, NODES)?, progress.clone())?;
        Testbed::of(&own)
    };
    let labelled = progress.step("a second controller", || testbed.prepare())?;
    let form = if options.short { Form::Short } else { Form::Full };
    let reports = disruption::run(&testbed, &scenarios, options.rate, form, &options.output, &progress);
    let restored = testbed.restore(labelled.as_deref());
    let reports = reports?;
    restored?;
    for (_, report) in &reports {
        say(&format!("\n{}", report.table(console::table::colour())))?;
    }
    let rows = disruption::rows(&options.output, &reports)?;
    let figures =
        serde_json::to_string_pretty(&disruption::figures(&rows)).map_err(|error| Error::Invalid(error.to_string()))?;
    make_dir(Path::new(FIGURES))?;
    write_file(&Path::new(FIGURES).join("disruption.json"), figures)?;
    if let Some(page) = &options.write {
        disruption::write_page(page, &options.output, &rows)?;
    }
    say(&summary(&reports, options))?;
    let missing = scenarios.len() - reports.len();
    if missing > 0 {
        return Err(Error::Invalid(format!("{missing} scenarios could not be measured; the lines above say why")));
    }
    let good = reports.iter().all(|(_, report)| report.ok);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The last lines: how many scenarios were worse than their controls, and where everything is.
fn summary(reports: &[(Scenario, Report)], options: &Options) -> String {
    let worse: Vec<&str> = reports.iter().filter(|(_, report)| !report.ok).map(|(scenario, _)| scenario.name).collect();
    let mut text = format!("{} scenarios, {} not more than the control", reports.len(), reports.len() - worse.len());
    if !worse.is_empty() {
        text.push_str(&format!("; worse or not usable: {}", worse.join(", ")));
    }
    let folder = options.output.display();
    text.push_str(&format!(
        "\nreports: {folder}/NAME.json, NAME.svg, summary.json; figures: {FIGURES}/disruption.json"
    ));
    if let Some(page) = &options.write {
        text.push_str(&format!("; page: {}", page.display()));
    }
    text.push('\n');
    text
}
