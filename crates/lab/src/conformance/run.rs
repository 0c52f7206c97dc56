//! Runs ginkgo and network-policy-api's suite on the control machine of a lab.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::report::Report;
use super::selection::Selection;
use super::{Artifacts, policy_api};
use crate::control_plane::CLUSTER_DOMAIN;
use crate::directories::Directories;
use crate::error::{Error, Result, create_dir, read_file};
use crate::process::lines_of;
use crate::program::copy_program;
use crate::progress::Progress;
use crate::record::Record;
use crate::supervisor::run_parallel;
use crate::underlay::{CONTROL, node_name};
use crate::{inspect, kubelet};

/// A run is stopped after this; the report then says so.
const TIMEOUT: &str = "8h";

/// How to run the specs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Suites, and specs by name.
    pub selection: Selection,
    /// Number of parallel ginkgo processes.
    pub processes: u32,
    /// Directory for `report.json`, `junit.xml` and `ginkgo.log`; for network-policy-api `policy-api.json`,
    /// `junit-policy-api.xml` and `policy-api.log`.
    pub output: PathBuf,
}

/// Runs the specs on a lab with ovnkube. A failed spec is part of the report, not an error.
pub fn run(
    directories: &Directories,
    record: &Record,
    artifacts: &Artifacts,
    options: &Options,
    progress: &Progress,
) -> Result<Report> {
    record.require_pod_network()?;
    let dir = directories.lab(&record.name);
    progress.step("images on the nodes", || import(&dir, record, &artifacts.images))?;
    let mut report = Report::default();
    if options.selection.has_specs() {
        report = progress.step("specs", || ginkgo(&dir, record, artifacts, options, progress))?;
    }
    if options.selection.has_policy_api() {
        report.merge(progress.step(policy_api::STEP, || {
            policy_api::run(&dir, record, &artifacts.programs.policy_api, options, progress)
        })?);
    }
    Ok(report)
}

fn import(dir: &Path, record: &Record, archive: &Path) -> Result<()> {
    run_parallel(
        (1..=record.spec.nodes)
            .map(|index| -> Box<dyn FnOnce() -> Result<()> + Send + '_> {
                Box::new(move || {
                    let name = node_name(index);
                    kubelet::import(&inspect::machine_dir(dir, &name), &inspect::machine(record, &name)?, archive)
                })
            })
            .collect(),
    )
}

fn ginkgo(
    dir: &Path,
    record: &Record,
    artifacts: &Artifacts,
    options: &Options,
    progress: &Progress,
) -> Result<Report> {
    let control = inspect::machine(record, CONTROL)?;
    // The control machine sees only the lab's directory of the host.
    let results = dir.join("conformance");
    let _ = std::fs::remove_dir_all(&results);
    create_dir(&results)?;
    create_dir(&options.output)?;
    let args = ginkgo_args(record, artifacts, options, dir, &results)?;
    let log_path = options.output.join("ginkgo.log");
    let mut log = File::create(&log_path).map_err(Error::io(format!("cannot write {}", log_path.display())))?;
    let mut command = control.command(&args)?;
    command.current_dir(&results).stdin(Stdio::null()).stdout(Stdio::piped());
    let errors = log.try_clone().map_err(Error::io(format!("cannot write {}", log_path.display())))?;
    command.stderr(errors);
    let mut child = control.spawn(&mut command)?;
    let (mut finished, mut failed) = (0, 0);
    if let Some(stdout) = child.stdout.take() {
        for line in lines_of(stdout) {
            writeln!(log, "{line}").map_err(Error::io(format!("cannot write {}", log_path.display())))?;
            // Every executed spec ends with such a line.
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
        let tail = inspect::tail(&log_path, 3).replace('\n', " | ");
        let log = log_path.display();
        return Err(Error::Invalid(format!("ginkgo ended ({status}) without a report; {log} ends with: {tail}")));
    }
    let report = Report::parse(&read_file(&written)?)?;
    // A run without specs, such as with a mistyped focus, does not overwrite the reports of an earlier one.
    if !report.ran_no_spec() {
        for name in [REPORT, JUNIT] {
            let (from, to) = (results.join(name), options.output.join(name));
            std::fs::copy(&from, &to).map_err(Error::io(format!("cannot write {}", to.display())))?;
        }
    }
    Ok(report)
}

const REPORT: &str = "report.json";
const JUNIT: &str = "junit.xml";

fn ginkgo_args(
    record: &Record,
    artifacts: &Artifacts,
    options: &Options,
    dir: &Path,
    results: &Path,
) -> Result<Vec<String>> {
    let missing = || Error::Invalid(format!("lab {:?} has no Kubernetes", record.name));
    let kubeconfig = record.endpoints.machine_kubeconfig.as_ref().ok_or_else(missing)?;
    let kubectl = record.kubernetes.as_ref().ok_or_else(missing)?.join("kubectl");
    let [ginkgo, suite] = ["ginkgo", "e2e.test"]
        .map(|program| copy_program(&artifacts.programs.tests.join(program), &dir.join("programs")));
    let mut args = vec![
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
    args.extend(options.selection.focus.as_ref().map(|focus| format!("--focus={focus}")));
    args.extend([
        suite?.display().to_string(),
        "--".into(),
        "--provider=skeleton".into(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--kubectl-path={}", kubectl.display()),
        format!("--num-nodes={}", record.spec.nodes),
        format!("--dns-domain={CLUSTER_DOMAIN}"),
        "--disable-log-dump=true".into(),
    ]);
    Ok(args)
}
