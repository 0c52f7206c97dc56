//! The shipped rules by Prometheus' own tools: `promtool check rules` and `promtool test rules`.

use std::path::PathBuf;

use lab::prometheus::{Programs, alert_names, rules_file};
use serde_json::{Value, json};

use crate::rule_cases::{CASES, Case};

/// A directory with the rules as `rules.json`.
fn directory(name: &str, compression: u32) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("rules.json"), rules_file(compression).unwrap()).unwrap();
    directory
}

#[test]
fn the_rules_are_valid_as_shipped_and_with_compressed_time() {
    let programs = Programs::from_environment().unwrap();
    let alerts = alert_names().unwrap().len();
    for compression in [1, 60] {
        let directory = directory(&format!("check-rules-{compression}"), compression);
        let said = programs.promtool(&directory, &["check", "rules", "--lint=all", "rules.json"]).unwrap();
        assert!(said.contains("SUCCESS"), "{said}");
        let found: usize = said.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
        assert!(found >= alerts, "{said}");
    }
}

/// The alert's state as a series that Prometheus itself writes.
fn expectation(case: &Case, minute: u32, fires: bool) -> Value {
    let expression = format!("count(ALERTS{{alertname=\"{}\", alertstate=\"firing\"}})", case.alert);
    let samples = if fires { json!([{ "labels": "{}", "value": 1 }]) } else { json!([]) };
    json!({ "expr": expression, "eval_time": format!("{minute}m"), "exp_samples": samples })
}

fn test_of(case: &Case) -> Value {
    let series = |(series, values): &(&str, &str)| {
        let labels = "namespace=\"ovn-kubernetes\"";
        let series = match series.strip_suffix('}') {
            Some(open) => format!("{open}, {labels}}}"),
            None => format!("{series}{{{labels}}}"),
        };
        json!({ "series": series, "values": values })
    };
    json!({
        "name": case.alert,
        "interval": "1m",
        "input_series": case.series.iter().map(series).collect::<Vec<_>>(),
        "promql_expr_test": [
            expectation(case, case.quiet, false),
            expectation(case, case.fires, true),
            expectation(case, case.resolved, false),
        ],
    })
}

#[test]
fn every_alert_fires_with_the_metrics_of_its_fault_and_resolves() {
    let programs = Programs::from_environment().unwrap();
    let directory = directory("test-rules", 1);
    let tests: Vec<Value> = CASES.iter().map(test_of).collect();
    let file = json!({ "rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests });
    std::fs::write(directory.join("tests.json"), file.to_string()).unwrap();
    let said = programs.promtool(&directory, &["test", "rules", "tests.json"]).unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
}

#[test]
fn every_shipped_alert_has_a_case() {
    let names = alert_names().unwrap();
    for name in &names {
        assert!(CASES.iter().any(|case| case.alert == name), "{name} has no case in rule_cases.rs");
    }
    // The test `metric_names` checks that the metrics of the rules exist; these are the same.
    let rules = rules_file(1).unwrap();
    for case in CASES {
        for (series, _) in case.series {
            let metric = series.split('{').next().unwrap();
            assert!(rules.contains(metric), "{}: no rule uses {metric}", case.alert);
        }
        assert!(names.iter().any(|name| name == case.alert), "{} is not shipped", case.alert);
    }
}
