//! What disturbs the network and what it costs: faults of the product's own parts, each measured by the prober beside a
//! control.
//!
//! ```text
//!  Scenario (fault, rounds) ──▶ Testbed (a lab with our network) ──▶ probe::run ──▶ Report ──▶ target/disruption/NAME.{json,svg}
//!                                                                                     └─▶ Row ──▶ docs/disruption.md
//! ```

mod fleet;
mod page;
mod scenarios;
mod testbed;

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result, make_dir, write_file};
use crate::interrupt;
use crate::probe::{self, Prober, Report, Rounds, Workload};
use crate::progress::Progress;
use fleet::Fleet;
pub use page::{Pair, Row, check_page, figures, write_page};
pub use testbed::Testbed;

/// Pods that a scenario needs beside the prober's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pods {
    /// None.
    Prober,
    /// A Deployment of so many behind a Service, which is probed as well.
    Fleet(u32),
}

/// Does the fault, and undoes it; returns when what it touched works again.
type Fault = fn(&Testbed<'_>, &probe::Marks<'_>, Form) -> Result<()>;

/// How thoroughly a scenario is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As `make disruption` does.
    Full,
    /// Once, and briefly: for tests and for looking.
    Short,
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line and of its files.
    pub name: &'static str,
    /// What is done, for people.
    pub title: &'static str,
    rounds: u32,
    window: Duration,
    pods: Pods,
    fault: Fault,
}

impl Scenario {
    /// All of them, in the order of the page.
    pub fn all() -> Vec<Self> {
        scenarios::ALL.to_vec()
    }

    /// One by name; the error lists those there are.
    pub fn named(name: &str) -> Result<Self> {
        scenarios::ALL.iter().copied().find(|scenario| scenario.name == name).ok_or_else(|| {
            let known: Vec<&str> = scenarios::ALL.iter().map(|scenario| scenario.name).collect();
            Error::Invalid(format!("no scenario is named {name:?}; there are {}", known.join(", ")))
        })
    }

    /// Does the fault and undoes it, once; returns when what it touched works again.
    pub fn fault(&self, testbed: &Testbed<'_>, marks: &probe::Marks<'_>, form: Form) -> Result<()> {
        (self.fault)(testbed, marks, form)
    }

    /// Measures it on a cluster whose prober's pods are there.
    pub fn measure(
        &self,
        testbed: &Testbed<'_>,
        workload: &Workload,
        rate: u32,
        form: Form,
        progress: &Progress,
    ) -> Result<Report> {
        let (rounds, window) = match form {
            Form::Full => (self.rounds, self.window),
            Form::Short => (1, self.window.min(Duration::from_secs(20))),
        };
        let rounds = Rounds { title: self.title.to_owned(), rounds, window };
        let mut plan = workload.plan(rate)?;
        let fleet = match self.pods {
            Pods::Prober => None,
            Pods::Fleet(size) => Some(Fleet::create(testbed, if form == Form::Full { size } else { size.min(4) })?),
        };
        if let Some(fleet) = &fleet {
            plan.paths.extend(fleet.paths(testbed, workload)?);
        }
        let prober = Prober::start(&plan)?;
        let report = probe::run(&prober, &rounds, progress, |marks| (self.fault)(testbed, marks, form));
        drop(prober);
        fleet.map_or(Ok(()), |fleet| fleet.remove(testbed))?;
        report
    }
}

/// Measures scenarios one after the other, and writes each report and picture as soon as it is there.
pub fn run(
    testbed: &Testbed<'_>,
    scenarios: &[Scenario],
    rate: u32,
    form: Form,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<(Scenario, Report)>> {
    make_dir(folder)?;
    let workload = progress.step("pods to probe", || Workload::create(testbed.record()))?;
    let measure = |scenario: &Scenario| -> Result<Option<(Scenario, Report)>> {
        interrupt::check()?;
        let measured = progress.step(scenario.title, || scenario.measure(testbed, &workload, rate, form, progress));
        let report = match measured {
            Ok(report) => report,
            Err(error @ Error::Interrupted) => return Err(error),
            // The others are measured all the same; the caller sees that this one is missing.
            Err(error) => {
                eprintln!("lab: {}: {error}", scenario.name);
                return Ok(None);
            }
        };
        let json = serde_json::to_string_pretty(&report).map_err(|error| Error::Invalid(error.to_string()))?;
        write_file(&folder.join(format!("{}.json", scenario.name)), json)?;
        write_file(&folder.join(format!("{}.svg", scenario.name)), report.svg())?;
        Ok(Some((*scenario, report)))
    };
    let reports: Result<Vec<_>> = scenarios.iter().filter_map(|scenario| measure(scenario).transpose()).collect();
    // Also when a report could not be written: the lab may be a kept one.
    let removed = workload.remove();
    let reports = reports?;
    removed?;
    Ok(reports)
}

/// The rows of a run, with those of former runs in the same folder for scenarios that it left out.
pub fn rows(folder: &Path, reports: &[(Scenario, Report)]) -> Result<Vec<Row>> {
    let fresh: Vec<Row> = reports.iter().map(|(scenario, report)| Row::of(scenario, report)).collect();
    page::merged(folder, &fresh)
}
