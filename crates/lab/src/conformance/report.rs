//! The results of a run, from ginkgo's JSON report: a summary, a table by group, and the failed specs. Results of
//! network-policy-api's suite are merged into it.

use console::table::{self, Cell, Tone};
use serde::Deserialize;

use super::selection::{GROUPS, group};
use crate::error::{Error, Result};

/// How a spec ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every assertion held.
    Passed,
    /// It failed, timed out or was interrupted.
    Failed,
    /// It found that it cannot run on this cluster.
    Skipped,
}

/// How one selected spec ended.
#[derive(Debug, Clone)]
pub struct SpecResult {
    pub name: String,
    /// Row of the summary table that it counts in.
    pub group: &'static str,
    pub outcome: Outcome,
    pub seconds: u64,
    /// Why it failed or was skipped.
    pub reason: String,
}

#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Selected specs only.
    pub specs: Vec<SpecResult>,
    /// Failures outside of specs, such as the setup of the suite.
    pub suite_failures: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SuiteReport {
    #[serde(default)]
    special_suite_failure_reasons: Option<Vec<String>>,
    #[serde(default)]
    spec_reports: Option<Vec<SpecReport>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    #[serde(default)]
    container_hierarchy_labels: Option<Vec<Option<Vec<String>>>>,
    #[serde(default)]
    leaf_node_labels: Option<Vec<String>>,
    leaf_node_type: String,
    #[serde(default)]
    leaf_node_text: String,
    state: String,
    /// In nanoseconds.
    #[serde(default)]
    run_time: u64,
    #[serde(default)]
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

impl Report {
    /// Parses ginkgo's JSON report.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let suites: Vec<SuiteReport> = serde_json::from_str(text)
            .map_err(|error| Error::Invalid(format!("cannot parse ginkgo's report: {error}")))?;
        let mut report = Self { specs: Vec::new(), suite_failures: Vec::new() };
        for suite in suites {
            report.suite_failures.extend(suite.special_suite_failure_reasons.into_iter().flatten());
            for spec in suite.spec_reports.into_iter().flatten() {
                report.add(spec);
            }
        }
        Ok(report)
    }

    /// Merges the results of another suite.
    pub(super) fn merge(&mut self, other: Self) {
        self.specs.extend(other.specs);
        self.suite_failures.extend(other.suite_failures);
    }

    fn add(&mut self, spec: SpecReport) {
        let reason = spec.failure.map(|failure| failure.message);
        let mut words = spec.container_hierarchy_texts.unwrap_or_default();
        words.push(spec.leaf_node_text);
        let name = words.join(" ");
        if spec.leaf_node_type != "It" {
            if !matches!(spec.state.as_str(), "passed" | "skipped") {
                let name = if name.is_empty() { &spec.leaf_node_type } else { &name };
                self.suite_failures.push(format!("{name}: {}", reason.unwrap_or_default()));
            }
            return;
        }
        let outcome = match (spec.state.as_str(), &reason) {
            ("passed", _) => Outcome::Passed,
            // Specs that were not selected are "skipped" as well, but have no reason.
            ("skipped" | "pending", None) => return,
            ("pending", _) => return,
            ("skipped", Some(_)) => Outcome::Skipped,
            _ => Outcome::Failed,
        };
        let mut labels: Vec<String> =
            spec.container_hierarchy_labels.into_iter().flatten().flatten().flatten().collect();
        labels.extend(spec.leaf_node_labels.into_iter().flatten());
        self.specs.push(SpecResult {
            group: group(&name, &labels),
            name,
            outcome,
            seconds: spec.run_time / 1_000_000_000,
            reason: reason.unwrap_or_default(),
        });
    }

    pub fn with(&self, outcome: Outcome) -> impl Iterator<Item = &SpecResult> {
        self.specs.iter().filter(move |spec| spec.outcome == outcome)
    }

    /// Whether specs ran, and none failed.
    pub fn is_success(&self) -> bool {
        self.suite_failures.is_empty()
            && self.with(Outcome::Failed).count() == 0
            && self.with(Outcome::Passed).count() > 0
    }

    /// Whether no spec passed or failed: none was selected, or the suite did not start.
    pub(crate) fn ran_no_spec(&self) -> bool {
        [Outcome::Passed, Outcome::Failed].into_iter().all(|outcome| self.with(outcome).count() == 0)
    }

    /// `N passed, M failed, K skipped`.
    pub fn summary(&self) -> String {
        let [passed, failed, skipped] =
            [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(|outcome| self.with(outcome).count());
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// A line for each group, and below it failed and skipped specs with their reasons.
    pub fn table(&self, colour: bool) -> String {
        let mut rows = Vec::new();
        for name in GROUPS {
            let count = |outcome| self.with(outcome).filter(|spec| spec.group == name).count();
            let [passed, failed, skipped] = [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(count);
            if passed + failed + skipped == 0 {
                continue;
            }
            let seconds: u64 = self.specs.iter().filter(|spec| spec.group == name).map(|spec| spec.seconds).sum();
            rows.push([
                Cell::plain(name),
                Cell::new(passed.to_string(), Tone::Good),
                Cell::new(failed.to_string(), if failed > 0 { Tone::Bad } else { Tone::Plain }),
                Cell::plain(skipped.to_string()),
                Cell::plain(format!("{seconds} s")),
            ]);
        }
        let mut text = table::render(["GROUP", "PASSED", "FAILED", "SKIPPED", "SUM OF TIMES"], rows, colour);
        for (word, outcome) in [("failed", Outcome::Failed), ("skipped", Outcome::Skipped)] {
            for spec in self.with(outcome) {
                text.push_str(&format!("{word}: {}\n    {}\n", spec.name, first_line(&spec.reason)));
            }
        }
        for failure in &self.suite_failures {
            text.push_str(&format!("failed: {failure}\n"));
        }
        text
    }
}

fn first_line(reason: &str) -> &str {
    reason.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(state: &str, failure: Option<&str>) -> serde_json::Value {
        serde_json::json!({
            "ContainerHierarchyTexts": ["[sig-network] Services"],
            "ContainerHierarchyLabels": [["sig-network"], null],
            "LeafNodeLabels": ["Conformance"],
            "LeafNodeType": "It", "LeafNodeText": format!("should be {state}"),
            "State": state, "RunTime": 2_500_000_000_u64,
            "Failure": failure.map(|message| serde_json::json!({ "Message": message })),
        })
    }

    #[test]
    fn unselected_specs_are_not_counted() {
        let text = serde_json::json!([{
            "SpecialSuiteFailureReasons": null,
            "SpecReports": [
                spec("passed", None),
                spec("skipped", None),
                spec("skipped", Some("needs two zones")),
                spec("timedout", Some("\n  no answer\nmore")),
                { "LeafNodeType": "ReportAfterSuite", "State": "passed" },
            ],
        }]);
        let report = Report::parse(&text.to_string()).unwrap();
        assert_eq!(report.summary(), "1 passed, 1 failed, 1 skipped");
        assert!(!report.is_success());
        let table = report.table(false);
        assert!(table.contains("sig-network [Conformance]  1       1       1        6 s"), "{table}");
        assert!(table.contains("failed: [sig-network] Services should be timedout\n    no answer\n"), "{table}");
        assert!(table.contains("skipped: [sig-network] Services should be skipped\n    needs two zones\n"), "{table}");
    }

    #[test]
    fn failures_outside_of_specs_count() {
        let text = serde_json::json!([{
            "SpecialSuiteFailureReasons": ["Suite Timeout Elapsed"],
            "SpecReports": [
                spec("passed", None),
                { "LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "Failure": { "Message": "no nodes" } },
            ],
        }]);
        let report = Report::parse(&text.to_string()).unwrap();
        assert!(!report.is_success());
        assert_eq!(report.suite_failures, ["Suite Timeout Elapsed", "SynchronizedBeforeSuite: no nodes"]);
        assert!(Report::parse("{}").is_err());
        assert!(!Report::parse("[]").unwrap().is_success(), "a run without specs proves nothing");
    }
}
