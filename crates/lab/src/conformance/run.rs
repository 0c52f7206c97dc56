//! One run on the control machine of a lab: ginkgo, and the suite of network-policy-api.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::report::Report;
use super::selection::Selection;
use super::{Supplies, policy_api};
use crate::control_plane::CLUSTER_DOMAIN;
use crate::error::{Error, Result, make_dir, read_file};
use crate::place::Place;
use crate::process::lines_of;
use crate::program::bring;
use crate::progress::Progress;
use crate::record::Record;
use crate::site::side_by_side;
use crate::underlay::{CONTROL, node_name};
use crate::{kubelet, view};

/// A run is ended after this; its report then says so.
const TIMEOUT: &str = "8h";

/// How specs are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which.
    pub selection: Selection,
    /// How many at the same time.
    pub processes: u32,
    /// The folder that gets `report.json`, `junit.xml` and `ginkgo.log`; for network-policy-api `policy-api.json`,
    /// `junit-policy-api.xml` and `policy-api.log`.
    pub output: PathBuf,
}

/// Runs the specs on a lab with our network and tells what came of them. A spec that fails is no error of the run.
pub fn run(
    place: &Place,
    record: &Record,
    supplies: &Supplies,
    options: &Options,
    progress: &Progress,
) -> Result<Report> {
    record.require_pod_network()?;
    let folder = place.lab(&record.name);
    progress.step("images on the nodes", || import(&folder, record, &supplies.images))?;
    let mut report = Report::default();
    if options.selection.has_specs() {
        report = progress.step("specs", || ginkgo(&folder, record, supplies, options, progress))?;
    }
    if options.selection.has_policy_api() {
        report.merge(progress.step(policy_api::STEP, || {
            policy_api::run(&folder, record, &supplies.programs.policy_api, options, progress)
        })?);
    }
    Ok(report)
}

fn import(folder: &Path, record: &Record, archive: &Path) -> Result<()> {
    side_by_side(
        (1..=record.spec.nodes)
            .map(|index| -> Box<dyn FnOnce() -> Result<()> + Send + '_> {
                Box::new(move || {
                    let name = node_name(index);
                    kubelet::import(&view::machine_dir(folder, &name), &view::machine(record, &name)?, archive)
                })
            })
            .collect(),
    )
}

fn ginkgo(
    folder: &Path,
    record: &Record,
    supplies: &Supplies,
    options: &Options,
    progress: &Progress,
) -> Result<Report> {
    let control = view::machine(record, CONTROL)?;
    // The lab's folder is what the control machine sees of the host.
    let results = folder.join("conformance");
    let _ = std::fs::remove_dir_all(&results);
    make_dir(&results)?;
    make_dir(&options.output)?;
    let words = words(record, supplies, options, folder, &results)?;
    let log_path = options.output.join("ginkgo.log");
    let mut log = File::create(&log_path).map_err(Error::io(format!("cannot write {}", log_path.display())))?;
    let mut command = control.command(&words)?;
    command.current_dir(&results).stdin(Stdio::null()).stdout(Stdio::piped());
    let errors = log.try_clone().map_err(Error::io(format!("cannot write {}", log_path.display())))?;
    command.stderr(errors);
    let mut child = control.spawn(&mut command)?;
    let (mut finished, mut failed) = (0, 0);
    if let Some(stdout) = child.stdout.take() {
        for line in lines_of(stdout) {
            writeln!(log, "{line}").map_err(Error::io(format!("cannot write {}", log_path.display())))?;
            // Each spec that ran ends with such a line.
            if line.starts_with("• ") {
                finished += 1;
                failed += u32::from(line.contains("[FAILED]") || line.contains("[TIMEDOUT]"));
                progress.note("specs", format!("{finished} ended, {failed} failed"));
            }
        }
    }
    let status = child.wait().map_err(Error::io("cannot wait for ginkgo"))?;
    let written = results.join(REPORT);
    if !written.exists() {
        let tail = view::tail(&log_path, 3).replace('\n', " | ");
        let log = log_path.display();
        return Err(Error::Invalid(format!("ginkgo ended ({status}) without a report; {log} ends with: {tail}")));
    }
    let report = Report::parse(&read_file(&written)?)?;
    // A run without specs, for example by a mistyped focus, does not overwrite the reports of an earlier one.
    if !report.ran_nothing() {
        for name in [REPORT, JUNIT] {
            let (from, to) = (results.join(name), options.output.join(name));
            std::fs::copy(&from, &to).map_err(Error::io(format!("cannot write {}", to.display())))?;
        }
    }
    Ok(report)
}

const REPORT: &str = "report.json";
const JUNIT: &str = "junit.xml";

fn words(
    record: &Record,
    supplies: &Supplies,
    options: &Options,
    folder: &Path,
    results: &Path,
) -> Result<Vec<String>> {
    let missing = || Error::Invalid(format!("lab {:?} has no Kubernetes", record.name));
    let kubeconfig = record.endpoints.machine_kubeconfig.as_ref().ok_or_else(missing)?;
    let kubectl = record.kubernetes.as_ref().ok_or_else(missing)?.join("kubectl");
    let [ginkgo, suite] =
        ["ginkgo", "e2e.test"].map(|program| bring(&supplies.programs.tests.join(program), &folder.join("programs")));
    let mut words = vec![
        ginkgo?.display().to_string(),
        "-v".into(),
        "--no-color".into(),
        format!("--timeout={TIMEOUT}"),
        format!("--procs={}", options.processes.max(1)),
        format!("--label-filter={}", options.selection.filter(record.spec.family)),
        format!("--output-dir={}", results.display()),
        format!("--json-report={REPORT}"),
        format!("--junit-report={JUNIT}"),
    ];
    words.extend(options.selection.focus.as_ref().map(|focus| format!("--focus={focus}")));
    words.extend([
        suite?.display().to_string(),
        "--".into(),
        "--provider=skeleton".into(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--kubectl-path={}", kubectl.display()),
        format!("--num-nodes={}", record.spec.nodes),
        format!("--dns-domain={CLUSTER_DOMAIN}"),
        "--disable-log-dump=true".into(),
    ]);
    Ok(words)
}
