//! Alerts and pages speak of metrics that there are, and the user's page has all of them.
#![allow(clippy::unwrap_used)]

const SOURCE: &str = include_str!("../src/metrics.rs");
const PAGES: [(&str, &str); 4] = [
    ("deploy/monitoring/controller-alerts.yaml", include_str!("../../../deploy/monitoring/controller-alerts.yaml")),
    ("docs/controller.md", include_str!("../../../docs/controller.md")),
    ("docs/slo.md", include_str!("../../../docs/slo.md")),
    ("docs/runbooks/controller.md", include_str!("../../../docs/runbooks/controller.md")),
];
/// What stands before a name in the registry.
const PREFIXES: [&str; 2] = ["ovnkube_controller_", "ovnkube_clustermanager_"];

/// The names in a text that look like metrics of ours.
fn named(text: &str) -> Vec<&str> {
    let words = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_' || sign == ':'));
    words.filter(|word| word.starts_with("ovnkube_")).collect()
}

/// The name under which a metric is registered: what a histogram or a counter adds to it is left away.
fn registered(name: &str) -> &str {
    let suffixes = ["_bucket", "_count", "_sum", "_total"];
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

#[test]
fn every_metric_that_is_spoken_of_exists() {
    for (page, text) in PAGES {
        let names = named(text);
        assert!(!names.is_empty(), "{page} names no metric");
        for name in names {
            let name = registered(name);
            let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
            let known = [short, name].iter().any(|name| SOURCE.contains(&format!("\"{name}\"")));
            assert!(known, "{page} speaks of {name}, which is not in metrics.rs");
        }
    }
}

#[test]
fn the_users_page_has_every_metric() {
    let page: Vec<&str> = named(PAGES[1].1).into_iter().map(registered).collect();
    let mut count = 0;
    for piece in SOURCE.split(".register(").skip(1) {
        let name = piece.split('"').nth(1).unwrap();
        let known = |prefix: &&str| page.contains(&format!("{prefix}{name}").as_str());
        assert!(PREFIXES.iter().any(known) || page.contains(&name), "docs/controller.md lacks {name}");
        count += 1;
    }
    assert!(count > 15, "{count} metrics were found in metrics.rs");
}

#[test]
fn every_alert_has_a_runbook_with_that_heading() {
    let (alerts, runbook) = (PAGES[0].1, PAGES[3].1);
    let anchor = |heading: &str| heading.trim().to_lowercase().replace([',', '.', '`'], "").replace(' ', "-");
    let headings: Vec<String> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    let links: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook: ")).collect();
    assert_eq!(links.len(), alerts.matches("- alert:").count());
    for link in links {
        let (file, place) = link.split_once('#').unwrap();
        assert_eq!(file, PAGES[3].0);
        assert!(headings.iter().any(|heading| heading == place), "{link}: the runbook has {headings:?}");
    }
}
