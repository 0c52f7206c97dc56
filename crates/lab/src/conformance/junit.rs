//! JUnit XML for results of runners that do not write it.

use super::report::{Outcome, Report, SpecResult};

pub(super) fn render(suite: &str, report: &Report) -> String {
    let count = |outcome| report.with(outcome).count();
    let mut cases: String = report.specs.iter().map(case).collect();
    for failure in &report.suite_failures {
        cases.push_str(&format!(
            "    <testcase name=\"{0}\" classname=\"{0}\" time=\"0\"><failure message=\"{1}\"/></testcase>\n",
            escape(suite),
            escape(failure)
        ));
    }
    let tests = report.specs.len() + report.suite_failures.len();
    let failures = count(Outcome::Failed) + report.suite_failures.len();
    let seconds: u64 = report.specs.iter().map(|spec| spec.seconds).sum();
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" time=\"{seconds}\"");
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"{}\" {counts} \
         skipped=\"{}\">\n{cases}  </testsuite>\n</testsuites>\n",
        escape(suite),
        count(Outcome::Skipped)
    )
}

fn case(spec: &SpecResult) -> String {
    let inner = match spec.outcome {
        Outcome::Passed => String::new(),
        Outcome::Failed => format!("<failure>{}</failure>", escape(&spec.reason)),
        Outcome::Skipped => format!("<skipped message=\"{}\"/>", escape(&spec.reason)),
    };
    format!(
        "    <testcase name=\"{}\" classname=\"{}\" time=\"{}\">{inner}</testcase>\n",
        escape(&spec.name),
        escape(spec.group),
        spec.seconds
    )
}

/// Escapes text or an attribute value; omits characters that XML does not allow.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_suite_failures_become_test_cases() {
        let spec = |name: &str, outcome, reason: &str| SpecResult {
            name: name.into(),
            group: "g",
            outcome,
            seconds: 2,
            reason: reason.into(),
        };
        let report = Report {
            specs: vec![
                spec("a<b", Outcome::Passed, ""),
                spec("c", Outcome::Failed, "\"x\" & \u{1b}y"),
                spec("d", Outcome::Skipped, "no z"),
            ],
            suite_failures: vec!["no pods".into()],
        };
        let text = render("s", &report);
        assert!(text.contains("<testsuite name=\"s\" tests=\"4\" failures=\"2\" time=\"6\" skipped=\"1\">"), "{text}");
        assert!(text.contains("<testcase name=\"a&lt;b\" classname=\"g\" time=\"2\"></testcase>"), "{text}");
        assert!(text.contains("<failure>&quot;x&quot; &amp; y</failure>"), "{text}");
        assert!(text.contains("<skipped message=\"no z\"/>"), "{text}");
        assert!(text.contains("<failure message=\"no pods\"/>"), "{text}");
    }
}
