//! Findings of the checks, and how they are printed.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::Serialize;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Fails the run.
    Error,
    /// Reported only; the run still passes.
    Warning,
}

/// One violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Whether it fails the run.
    pub level: Level,
    /// Crate, file or `file:line`.
    pub place: String,
    /// What breaks the rule, for this place.
    pub problem: String,
    /// How to fix it.
    pub remedy: String,
}

impl Finding {
    pub(crate) fn error(place: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Error, place: place.into(), problem: problem.into(), remedy: remedy.into() }
    }

    pub(crate) fn warning(place: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::error(place, problem, remedy) }
    }
}

/// Format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text, one finding in two lines.
    Human,
    /// One JSON object with all findings.
    Json,
}

/// All findings of a run, by check.
#[derive(Debug, Default)]
pub struct Report {
    checks: Vec<(&'static str, Vec<Finding>)>,
}

#[derive(Serialize)]
struct JsonReport<'a> {
    ok: bool,
    checks: Vec<&'a str>,
    findings: Vec<JsonFinding<'a>>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    check: &'a str,
    #[serde(flatten)]
    finding: &'a Finding,
}

impl Report {
    pub(crate) fn add(&mut self, check: &'static str, findings: Vec<Finding>) {
        self.checks.push((check, findings));
    }

    /// True if no finding is an error.
    pub fn ok(&self) -> bool {
        self.count(Level::Error) == 0
    }

    /// The report as text, ending with a newline.
    pub fn render(&self, output: Output) -> String {
        match output {
            Output::Human => self.human(),
            Output::Json => self.json(),
        }
    }

    fn count(&self, level: Level) -> usize {
        self.findings().filter(|(_, finding)| finding.level == level).count()
    }

    fn findings(&self) -> impl Iterator<Item = (&'static str, &Finding)> {
        self.checks.iter().flat_map(|(check, findings)| findings.iter().map(move |finding| (*check, finding)))
    }

    fn human(&self) -> String {
        let mut text = String::new();
        for (check, Finding { level, place, problem, remedy }) in self.findings() {
            let level = match level {
                Level::Error => "error",
                Level::Warning => "warning",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{level}[{check}] {place}: {problem}\n    remedy: {remedy}");
        }
        let checks: Vec<&str> = self.checks.iter().map(|(check, _)| *check).collect();
        let (errors, warnings) = (self.count(Level::Error), self.count(Level::Warning));
        let verdict = if self.ok() { "ok" } else { "FAILED" };
        let _ = writeln!(text, "house: {} {verdict} ({errors} errors, {warnings} warnings)", checks.join(" + "));
        text
    }

    fn json(&self) -> String {
        let report = JsonReport {
            ok: self.ok(),
            checks: self.checks.iter().map(|(check, _)| *check).collect(),
            findings: self.findings().map(|(check, finding)| JsonFinding { check, finding }).collect(),
        };
        // Strings and booleans always serialize.
        let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_printed_and_do_not_fail_the_run() {
        let mut report = Report::default();
        report.add("purity", vec![Finding::warning("netmodel", "x is unused", "remove it")]);
        assert!(report.ok());
        assert!(report.render(Output::Human).contains("warning[purity] netmodel: x is unused"));
        assert!(report.render(Output::Human).contains("purity ok (0 errors, 1 warnings)"));
    }

    #[test]
    fn json_contains_every_finding() {
        let mut report = Report::default();
        report.add("purity", vec![]);
        report.add("layout", vec![Finding::error("a.rs", "is long", "split it")]);
        let json: serde_json::Value = serde_json::from_str(&report.render(Output::Json)).expect("JSON");
        assert_eq!(json["ok"], false);
        assert_eq!(json["checks"], serde_json::json!(["purity", "layout"]));
        assert_eq!(
            json["findings"][0],
            serde_json::json!({"check": "layout", "level": "error", "place": "a.rs", "problem": "is long", "remedy": "split it"})
        );
    }
}
