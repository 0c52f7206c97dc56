//! Packet loss caused by faults and changes of ovnkube's components, each measured by the prober against a control.
//!
//! ```text
//!  Scenario (fault, rounds) ──▶ Testbed (a lab with ovnkube) ──▶ probe::run ──▶ Report ──▶ target/disruption/NAME.{json,svg}
//!                                                                                  └─▶ Row ──▶ docs/disruption.md
//! ```

mod netexec;
mod page;
mod scenarios;
mod testbed;

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result, create_dir, write_file};
use crate::interrupt;
use crate::probe::{self, Prober, Report, Rounds, Workload};
use crate::progress::Progress;
use netexec::NetexecDeployment;
pub(crate) use page::{Row, check_page, figures, write_page};
pub use testbed::Testbed;

/// Pods that a scenario needs in addition to the prober's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pods {
    Prober,
    /// A Deployment of this many pods behind a Service, which is probed as well.
    NetexecDeployment(u32),
}

/// Injects the fault and undoes it; returns when everything works again.
type Fault = fn(&Testbed<'_>, &probe::Marks<'_>, RunLength) -> Result<()>;

/// How long a scenario is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLength {
    /// All rounds, as with `make disruption`.
    Full,
    /// One short round: for tests.
    Short,
}

/// A fault and how to measure it.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// On the command line and in file names.
    pub name: &'static str,
    /// For reports.
    pub title: &'static str,
    rounds: u32,
    window: Duration,
    pods: Pods,
    fault: Fault,
}

impl Scenario {
    /// All scenarios, in the order of the page.
    pub fn all() -> Vec<Self> {
        scenarios::ALL.to_vec()
    }

    /// Looks a scenario up; the error lists the existing ones.
    pub fn named(name: &str) -> Result<Self> {
        scenarios::ALL.iter().copied().find(|scenario| scenario.name == name).ok_or_else(|| {
            let known: Vec<&str> = scenarios::ALL.iter().map(|scenario| scenario.name).collect();
            Error::Invalid(format!("no scenario named {name:?}; there are: {}", known.join(", ")))
        })
    }

    /// Injects the fault and undoes it, once; returns when everything works again.
    pub fn fault(&self, testbed: &Testbed<'_>, marks: &probe::Marks<'_>, length: RunLength) -> Result<()> {
        (self.fault)(testbed, marks, length)
    }

    /// Measures the scenario; the prober's pods must exist.
    pub fn measure(
        &self,
        testbed: &Testbed<'_>,
        workload: &Workload,
        rate: u32,
        length: RunLength,
        progress: &Progress,
    ) -> Result<Report> {
        let (rounds, window) = match length {
            RunLength::Full => (self.rounds, self.window),
            RunLength::Short => (1, self.window.min(Duration::from_secs(20))),
        };
        let rounds = Rounds { title: self.title.to_owned(), rounds, window };
        let mut plan = workload.plan(rate)?;
        let deployment = match self.pods {
            Pods::Prober => None,
            Pods::NetexecDeployment(size) => {
                Some(NetexecDeployment::create(testbed, if length == RunLength::Full { size } else { size.min(4) })?)
            }
        };
        if let Some(deployment) = &deployment {
            plan.paths.extend(deployment.paths(testbed, workload)?);
        }
        let prober = Prober::start(&plan)?;
        let report = probe::run(&prober, &rounds, progress, |marks| (self.fault)(testbed, marks, length));
        drop(prober);
        deployment.map_or(Ok(()), |deployment| deployment.remove(testbed))?;
        report
    }
}

/// Measures scenarios one after the other, and writes each report and picture as soon as it is complete.
pub fn run(
    testbed: &Testbed<'_>,
    scenarios: &[Scenario],
    rate: u32,
    length: RunLength,
    dir: &Path,
    progress: &Progress,
) -> Result<Vec<(Scenario, Report)>> {
    create_dir(dir)?;
    let workload = progress.step("prober pods", || Workload::create(testbed.record()))?;
    let measure = |scenario: &Scenario| -> Result<Option<(Scenario, Report)>> {
        interrupt::check()?;
        let measured = progress.step(scenario.title, || scenario.measure(testbed, &workload, rate, length, progress));
        let report = match measured {
            Ok(report) => report,
            Err(error @ Error::Interrupted) => return Err(error),
            // The other scenarios are measured nevertheless; the caller sees that this one is missing.
            Err(error) => {
                console::eprint_line(format_args!("lab: {}: {error}", scenario.name));
                return Ok(None);
            }
        };
        let json = serde_json::to_string_pretty(&report).map_err(|error| Error::Invalid(error.to_string()))?;
        write_file(&dir.join(format!("{}.json", scenario.name)), json)?;
        write_file(&dir.join(format!("{}.svg", scenario.name)), report.svg())?;
        Ok(Some((*scenario, report)))
    };
    let reports: Result<Vec<_>> = scenarios.iter().filter_map(|scenario| measure(scenario).transpose()).collect();
    // Also if a report could not be written: the lab may continue to run.
    let removed = workload.remove();
    let reports = reports?;
    removed?;
    Ok(reports)
}

/// The rows of this run, and those of earlier runs in the same directory for scenarios that it omitted.
pub fn rows(dir: &Path, reports: &[(Scenario, Report)]) -> Result<Vec<Row>> {
    let fresh: Vec<Row> = reports.iter().map(|(scenario, report)| Row::of(scenario, report)).collect();
    page::merged(dir, &fresh)
}
