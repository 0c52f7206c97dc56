//! Alerts and pages speak of metrics that there are, and the user's page has all of them.
#![allow(clippy::unwrap_used)]

const SOURCES: [&str; 2] = [include_str!("../src/cni/metrics.rs"), include_str!("../src/role.rs")];
const ALERTS: &str = include_str!("../../../deploy/monitoring/node-alerts.yaml");
const PAGE: &str = include_str!("../../../docs/node.md");
const RUNBOOK: &str = include_str!("../../../docs/runbooks/node.md");
const PREFIX: &str = "ovnkube_node_";

/// The metrics that are registered, with the prefix.
fn registered() -> Vec<String> {
    let pieces = SOURCES.iter().flat_map(|source| source.split(".register(\"").skip(1));
    pieces.map(|piece| format!("{PREFIX}{}", piece.split('"').next().unwrap())).collect()
}

/// The metrics of ours that a text speaks of, without what a histogram or a counter adds.
fn named(text: &str) -> Vec<&str> {
    let words = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_'));
    let suffixes = ["_bucket", "_count", "_sum", "_total"];
    let bare = |word| suffixes.iter().find_map(|suffix| str::strip_suffix(word, suffix)).unwrap_or(word);
    words.filter(|word| word.starts_with(PREFIX)).map(bare).collect()
}

#[test]
fn metrics_that_are_spoken_of_exist_and_the_page_has_all() {
    let registered = registered();
    assert!(registered.len() >= 3, "{registered:?}");
    for text in [ALERTS, PAGE] {
        assert!(!named(text).is_empty());
        for name in named(text) {
            assert!(registered.iter().any(|known| known == name), "{name} is none of {registered:?}");
        }
    }
    for name in &registered {
        assert!(named(PAGE).contains(&name.as_str()), "docs/node.md lacks {name}");
    }
}

#[test]
fn every_alert_has_a_runbook_with_that_heading() {
    let anchor = |heading: &str| heading.trim().to_lowercase().replace([',', '.', '`'], "").replace(' ', "-");
    let headings: Vec<String> = RUNBOOK.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    let links: Vec<&str> = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("runbook: ")).collect();
    assert_eq!(links.len(), ALERTS.matches("- alert:").count());
    for link in links {
        let place = link.strip_prefix("docs/runbooks/node.md#").unwrap();
        assert!(headings.iter().any(|heading| heading == place), "{link}: the runbook has {headings:?}");
    }
}
