//! Runs network-policy-api's conformance suite, a Go test, on the control machine of a lab.
//!
//! The suite starts five StatefulSets; each of its tests applies a policy and has subtests that connect their pods.
//! `test2json` converts its output to one JSON object per line; each subtest becomes a result.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;

use super::junit;
use super::report::{Outcome, Report, SpecResult};
use super::run::Options;
use super::selection::POLICY_API;
use crate::error::{Error, Result, create_dir, write_file};
use crate::inspect;
use crate::process::lines_of;
use crate::program::copy_program;
use crate::progress::Progress;
use crate::record::Record;
use crate::underlay::CONTROL;

pub(super) const STEP: &str = "network-policy-api's tests";

const EVENTS: &str = "policy-api.json";
const JUNIT: &str = "junit-policy-api.xml";
const LOG: &str = "policy-api.log";

/// The Go test that contains all others as subtests.
const ROOT: &str = "TestConformance";

/// The suite is stopped after this; the report then says so.
const TIMEOUT: &str = "2h";

/// Runs the suite. A failed test is part of the report, not an error.
pub(super) fn run(
    dir: &Path,
    record: &Record,
    programs: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<Report> {
    create_dir(&options.output)?;
    let [converter, suite] =
        ["test2json", "policy-api.test"].map(|program| copy_program(&programs.join(program), &dir.join("programs")));
    let args = [
        converter?.display().to_string(),
        // Without it the events lack the duration of tests.
        "-t".into(),
        suite?.display().to_string(),
        "-test.v=test2json".into(),
        format!("-test.timeout={TIMEOUT}"),
        format!("-test.run={}", pattern(options.selection.focus.as_deref())),
    ];
    let create = |name: &str| {
        let path = options.output.join(name);
        File::create(&path).map_err(Error::io(format!("cannot write {}", path.display())))
    };
    let (mut events, log) = (create(EVENTS)?, create(LOG)?);
    let control = inspect::machine(record, CONTROL)?;
    let mut command = control.command(&args)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = control.spawn(&mut command)?;
    let mut run = Run::default();
    if let Some(stdout) = child.stdout.take() {
        for line in lines_of(stdout) {
            writeln!(events, "{line}").map_err(Error::io(format!("cannot write {EVENTS}")))?;
            if run.add(&line) {
                progress.note(STEP, run.progress());
            }
        }
    }
    let status = child.wait().map_err(Error::io("cannot wait for network-policy-api's tests"))?;
    let mut report = run.report();
    if !status.success() && report.suite_failures.is_empty() && report.with(Outcome::Failed).count() == 0 {
        report.suite_failures.push(format!("network-policy-api's tests ended ({status}); {LOG} and {EVENTS} show why"));
    }
    write_file(&options.output.join(JUNIT), junit::render(POLICY_API, &report))?;
    Ok(report)
}

/// The argument of Go's `-run`: regular expressions by level.
fn pattern(focus: Option<&str>) -> String {
    focus.map_or_else(|| format!("^{ROOT}$"), |focus| format!("^{ROOT}$/{focus}"))
}

/// One line of test2json.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    #[serde(default)]
    test: String,
    /// In seconds.
    #[serde(default)]
    elapsed: f64,
    #[serde(default)]
    output: String,
}

#[derive(Default)]
struct Test {
    outcome: Option<Outcome>,
    seconds: u64,
    output: String,
}

#[derive(Default)]
struct Run {
    /// By name, parents before their subtests.
    tests: BTreeMap<String, Test>,
    /// Output that belongs to no test.
    output: String,
}

impl Run {
    /// Adds one line; true if a test ended.
    fn add(&mut self, line: &str) -> bool {
        let Ok(event) = serde_json::from_str::<Event>(line) else {
            self.output.push_str(line);
            self.output.push('\n');
            return false;
        };
        if event.test.is_empty() {
            self.output.push_str(&event.output);
            return false;
        }
        let test = self.tests.entry(event.test).or_default();
        test.outcome = match event.action.as_str() {
            "output" => {
                // Lines of the test runner repeat what the other events say.
                if !event.output.trim_start().starts_with("=== ") && !event.output.trim_start().starts_with("--- ") {
                    test.output.push_str(&event.output);
                }
                return false;
            }
            "pass" => Some(Outcome::Passed),
            "fail" => Some(Outcome::Failed),
            "skip" => Some(Outcome::Skipped),
            _ => return false,
        };
        // Whole seconds, as in ginkgo's results.
        test.seconds = std::time::Duration::try_from_secs_f64(event.elapsed).unwrap_or_default().as_secs();
        true
    }

    fn progress(&self) -> String {
        let results = self.results();
        let failed = results.iter().filter(|result| result.outcome == Outcome::Failed).count();
        format!("{} ended, {failed} failed", results.len())
    }

    /// Tests without subtests, and those that failed although their subtests passed.
    fn results(&self) -> Vec<SpecResult> {
        let mut results = Vec::new();
        for (name, test) in &self.tests {
            let Some(short) = name.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/')) else { continue };
            let below = format!("{name}/");
            let has_tests = self.below(&below).next().is_some();
            let explained = self.below(&below).any(|test| test.outcome != Some(Outcome::Passed));
            let outcome = match test.outcome {
                _ if has_tests && (explained || test.outcome == Some(Outcome::Passed)) => continue,
                Some(outcome) => outcome,
                None => continue,
            };
            let reason = if outcome == Outcome::Passed { String::new() } else { test.output.clone() };
            results.push(SpecResult { name: short.into(), group: POLICY_API, outcome, seconds: test.seconds, reason });
        }
        results
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Test> {
        self.tests
            .range(prefix.to_owned()..)
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(_, test)| test)
    }

    /// Tests that did not end count as failed.
    fn report(mut self) -> Report {
        for test in self.tests.values_mut().filter(|test| test.outcome.is_none()) {
            test.outcome = Some(Outcome::Failed);
            test.output.insert_str(0, "it did not end\n");
        }
        let specs = self.results();
        let mut suite_failures = Vec::new();
        let explained = specs.iter().any(|spec| spec.outcome == Outcome::Failed);
        match self.tests.get(ROOT) {
            Some(root) if root.outcome == Some(Outcome::Failed) && !explained => {
                suite_failures.push(format!("network-policy-api's setup: {}", last_line(&root.output)));
            }
            None if specs.is_empty() => {
                suite_failures.push(format!("network-policy-api's tests did not start: {}", last_line(&self.output)));
            }
            _ => {}
        }
        Report { specs, suite_failures }
    }
}

fn last_line(text: &str) -> &str {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no reason was given")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(events: &[(&str, &str, &str)]) -> Report {
        let mut run = Run::default();
        for (action, test, output) in events {
            let event = serde_json::json!({ "Action": action, "Test": test, "Output": output, "Elapsed": 1.5 });
            run.add(&event.to_string());
        }
        run.report()
    }

    #[test]
    fn each_subtest_is_a_result() {
        let report = run(&[
            ("run", "TestConformance", ""),
            ("run", "TestConformance/A/x", ""),
            ("pass", "TestConformance/A/x", ""),
            ("output", "TestConformance/A/y", "=== RUN   TestConformance/A/y\n"),
            ("output", "TestConformance/A/y", "    helper.go:1: FAILED Command was [a]\n"),
            ("fail", "TestConformance/A/y", ""),
            ("fail", "TestConformance/A", ""),
            ("output", "TestConformance/B", "Skipping B: not supported\n"),
            ("skip", "TestConformance/B", ""),
            ("fail", "TestConformance", ""),
        ]);
        assert_eq!(report.summary(), "1 passed, 1 failed, 1 skipped");
        let failed = report.with(Outcome::Failed).next().unwrap();
        assert_eq!((failed.name.as_str(), failed.group, failed.seconds), ("A/y", "network-policy-api", 1));
        assert!(failed.reason.trim().starts_with("helper.go:1: FAILED"), "{}", failed.reason);
        assert!(report.suite_failures.is_empty());
    }

    #[test]
    fn failures_outside_of_subtests_are_reported() {
        let report = run(&[("output", "TestConformance", "pods are not ready\n"), ("fail", "TestConformance", "")]);
        assert_eq!(report.suite_failures, ["network-policy-api's setup: pods are not ready"]);
        assert!(!report.is_success());
        // The policy could not be removed.
        let report = run(&[("pass", "TestConformance/A/x", ""), ("fail", "TestConformance/A", "")]);
        assert_eq!(report.summary(), "1 passed, 1 failed, 0 skipped");
        // The suite was stopped during a test.
        let report = run(&[("run", "TestConformance", ""), ("run", "TestConformance/A/x", "")]);
        assert_eq!(report.summary(), "0 passed, 1 failed, 0 skipped");
        let mut silent = Run::default();
        silent.add("cannot execute");
        assert_eq!(silent.report().suite_failures, ["network-policy-api's tests did not start: cannot execute"]);
    }

    #[test]
    fn a_focus_selects_subtests_of_the_root() {
        assert_eq!(pattern(None), "^TestConformance$");
        assert_eq!(pattern(Some("Gress/allow")), "^TestConformance$/Gress/allow");
    }
}
