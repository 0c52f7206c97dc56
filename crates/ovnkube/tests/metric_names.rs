//! Alerts and pages speak of metrics that there are, the user's page of each role has all of its own, and each alert has a
//! runbook.
#![allow(clippy::unwrap_used)]

/// A text, by its path.
type Page = (&'static str, &'static str);

macro_rules! page {
    ($path:literal) => {
        ($path, include_str!(concat!("../../../", $path)))
    };
}

/// What a role measures, and where that is spoken of.
struct Role {
    /// Where its metrics are registered.
    sources: &'static [Page],
    /// What stands before a name in the registry.
    prefixes: &'static [&'static str],
    /// The user's page.
    page: Page,
    alerts: Page,
    runbook: Page,
    /// Other pages that name metrics.
    others: &'static [Page],
    /// So many metrics there are at least: a source that is not understood would prove nothing.
    fewest: usize,
}

const ROLES: [Role; 2] = [
    Role {
        sources: &[page!("crates/controller/src/metrics.rs")],
        prefixes: &["ovnkube_controller_", "ovnkube_clustermanager_"],
        page: page!("docs/controller.md"),
        alerts: page!("deploy/monitoring/controller-alerts.yaml"),
        runbook: page!("docs/runbooks/controller.md"),
        others: &[page!("docs/slo.md"), page!("docs/runbooks/controller.md")],
        fewest: 16,
    },
    Role {
        sources: &[page!("crates/node/src/cni/metrics.rs"), page!("crates/node/src/role.rs")],
        prefixes: &["ovnkube_node_"],
        page: page!("docs/node.md"),
        alerts: page!("deploy/monitoring/node-alerts.yaml"),
        runbook: page!("docs/runbooks/node.md"),
        others: &[],
        fewest: 3,
    },
];

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
    for role in ROLES {
        for (page, text) in [role.page, role.alerts].iter().chain(role.others) {
            let names = named(text);
            assert!(!names.is_empty(), "{page} names no metric");
            for name in names {
                let name = registered(name);
                let short = role.prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
                let is_in = |name: &str| role.sources.iter().any(|source| source.1.contains(&format!("\"{name}\"")));
                assert!(is_in(short) || is_in(name), "{page} speaks of {name}, which nobody registers");
            }
        }
    }
}

#[test]
fn the_users_page_has_every_metric() {
    for role in ROLES {
        let page: Vec<&str> = named(role.page.1).into_iter().map(registered).collect();
        let pieces = role.sources.iter().flat_map(|source| source.1.split(".register(").skip(1));
        let mut count = 0;
        for piece in pieces {
            let name = piece.split('"').nth(1).unwrap();
            let known = |prefix: &&str| page.contains(&format!("{prefix}{name}").as_str());
            assert!(role.prefixes.iter().any(known) || page.contains(&name), "{} lacks {name}", role.page.0);
            count += 1;
        }
        assert!(count >= role.fewest, "{count} metrics were found in {:?}", role.sources[0].0);
    }
}

#[test]
fn every_alert_has_a_runbook_with_that_heading() {
    let anchor = |heading: &str| heading.trim().to_lowercase().replace([',', '.', '`'], "").replace(' ', "-");
    for role in ROLES {
        let (alerts, runbook) = (role.alerts.1, role.runbook.1);
        let headings: Vec<String> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
        let links: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook: ")).collect();
        assert_eq!(links.len(), alerts.matches("- alert:").count());
        for link in links {
            let (file, place) = link.split_once('#').unwrap();
            assert_eq!(file, role.runbook.0);
            assert!(headings.iter().any(|heading| heading == place), "{link}: the runbook has {headings:?}");
        }
    }
}
