//! The matrix as a table: one line for each kind of connection, and below it each unexpected result.

use console::table::{self, Cell, Tone};
use netmodel::Family;

use super::{CheckResult, Matrix};

impl Matrix {
    /// The table, and below it the unexpected results.
    pub fn table(&self, colour: bool) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        for check in &self.checks {
            if !kinds.contains(&check.kind.as_str()) {
                kinds.push(&check.kind);
            }
        }
        let rows = kinds.iter().map(|kind| {
            let [v4, v6] = Family::BOTH.map(|family| self.cell(kind, family));
            let expected = self.checks.iter().any(|check| check.kind == *kind && check.expected);
            [Cell::plain(kind), Cell::plain(if expected { "pass" } else { "denied" }), v4, v6]
        });
        let mut text = table::render(["CONNECTION", "EXPECTED", "IPV4", "IPV6"], rows.collect(), colour);
        for check in self.wrong() {
            let seen = if check.passed { "passed" } else { "no answer" };
            let expected = if check.expected { "pass" } else { "denied" };
            text.push_str(&format!(
                "wrong: {} {}, {} to {}: {seen}, expected {expected} ({})\n",
                check.family, check.kind, check.from, check.to, check.detail
            ));
        }
        text
    }

    fn cell(&self, kind: &str, family: Family) -> Cell {
        let checks: Vec<&CheckResult> =
            self.checks.iter().filter(|check| check.kind == kind && check.family == family).collect();
        let right = checks.iter().filter(|check| check.is_as_expected()).count();
        match checks.len() {
            0 => Cell::plain("-"),
            all if all == right => Cell::new(format!("✔ {right}"), Tone::Good),
            all => Cell::new(format!("✘ {right} of {all}"), Tone::Bad),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_results_are_listed() {
        let check = |expected, passed| CheckResult {
            kind: "pod → service".into(),
            family: Family::V4,
            from: "client on n1".into(),
            to: "web".into(),
            expected,
            passed,
            detail: "web-1".into(),
        };
        let good = Matrix { checks: vec![check(true, true)] };
        assert_eq!(good.table(false), "CONNECTION     EXPECTED  IPV4  IPV6\npod → service  pass      ✔ 1   -\n");
        let bad = Matrix { checks: vec![check(true, true), check(true, false)] };
        assert!(bad.table(false).contains("✘ 1 of 2"), "{}", bad.table(false));
        assert!(bad.table(false).contains("client on n1 to web: no answer, expected pass"));
    }
}
