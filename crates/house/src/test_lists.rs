//! Every test program is in one of the Makefile's lists: `UNIT_TESTS`, which `make unit` runs, or `LAB_TESTS`.
//!
//! `make unit` names its programs, so a new one that is in no list would run only in `make test`, hours later.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::workspace::Member;

const UNIT: &str = "UNIT_TESTS";
const LAB: &str = "LAB_TESTS";

/// Compares the test programs of all crates with the lists in the Makefile.
pub(crate) fn check(members: &[Member], makefile: &str) -> Vec<Finding> {
    let (unit, lab) = (variable(makefile, UNIT), variable(makefile, LAB));
    let programs: BTreeSet<&str> = members.iter().flat_map(|member| member.tests.iter().map(String::as_str)).collect();
    let mut findings = Vec::new();
    let mut report = |problem: String, remedy: &str| findings.push(Finding::error("Makefile", problem, remedy));
    for program in &programs {
        if !unit.contains(program) && !lab.contains(program) {
            report(
                format!("the test program {program} is in no list"),
                "add it to UNIT_TESTS if it needs no root, no lab and no Go, else to LAB_TESTS",
            );
        }
    }
    for program in unit.intersection(&lab) {
        report(format!("{program} is in UNIT_TESTS and in LAB_TESTS"), "remove it from one of them");
    }
    for program in unit.union(&lab).filter(|program| !programs.contains(*program)) {
        report(format!("no crate has a test program {program}"), "remove it from UNIT_TESTS or LAB_TESTS");
    }
    findings
}

/// The words of a variable's `:=` assignment, with its continuation lines.
fn variable<'a>(makefile: &'a str, name: &str) -> BTreeSet<&'a str> {
    let mut lines = makefile.lines();
    let first = lines.find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(":="));
    let mut words = BTreeSet::new();
    let mut next = first;
    while let Some(line) = next {
        let (content, continues) = line.strip_suffix('\\').map_or((line, false), |content| (content, true));
        words.extend(content.split_whitespace());
        next = if continues { lines.next() } else { None };
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(makefile: &str) -> Vec<String> {
        let member = |name: &str, tests: &[&str]| Member {
            name: name.to_owned(),
            manifest: "Cargo.toml".into(),
            openings: vec![],
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
        };
        let members = [member("a", &["rows", "real"]), member("b", &["real"]), member("c", &["fuzz"])];
        check(&members, makefile).into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn every_test_program_is_in_exactly_one_list() {
        assert!(problems("UNIT_TESTS := fuzz \\\n  rows\nLAB_TESTS := real\n").is_empty());
        assert_eq!(problems("UNIT_TESTS := fuzz\nLAB_TESTS := real\n"), ["the test program rows is in no list"]);
        assert_eq!(
            problems("UNIT_TESTS := fuzz rows real\nLAB_TESTS := real gone"),
            ["real is in UNIT_TESTS and in LAB_TESTS", "no crate has a test program gone"]
        );
    }

    #[test]
    fn a_makefile_without_lists_misses_every_program() {
        assert_eq!(problems("all:\n\techo UNIT_TESTS := rows\n").len(), 3);
    }
}
