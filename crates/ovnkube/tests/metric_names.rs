//! Alerts and pages name existing metrics, each role's page documents all its metrics, and each alert has a runbook.
#![allow(clippy::unwrap_used)]

/// Path and contents.
type Page = (&'static str, &'static str);

macro_rules! page {
    ($path:literal) => {
        ($path, include_str!(concat!("../../../", $path)))
    };
}

/// A role's metrics, and the pages that name them.
struct Role {
    /// Where its metrics are registered.
    sources: &'static [Page],
    /// Prefixes of the registry.
    prefixes: &'static [&'static str],
    /// The user's page.
    page: Page,
    alerts: Page,
    runbook: Page,
    /// Other pages that name metrics.
    others: &'static [Page],
    /// The least number of metrics to find, so that a source that is not parsed fails the test.
    fewest: usize,
}

const ROLES: [Role; 4] = [
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
        sources: &[
            page!("crates/node/src/certificate/metrics.rs"),
            page!("crates/node/src/cni/metrics.rs"),
            page!("crates/node/src/role.rs"),
        ],
        prefixes: &["ovnkube_node_"],
        page: page!("docs/node.md"),
        alerts: page!("deploy/monitoring/node-alerts.yaml"),
        runbook: page!("docs/runbooks/node.md"),
        others: &[],
        fewest: 3,
    },
    Role {
        sources: &[
            page!("crates/database/src/metrics.rs"),
            page!("crates/database/src/relay/metrics.rs"),
            page!("crates/database/src/active_backup/metrics.rs"),
            page!("crates/database/src/node_listener/metrics.rs"),
        ],
        prefixes: &[],
        page: page!("docs/databases.md"),
        alerts: page!("deploy/monitoring/database-alerts.yaml"),
        runbook: page!("docs/runbooks/databases.md"),
        others: &[page!("docs/runbooks/databases.md")],
        fewest: 16,
    },
    Role {
        sources: &[page!("crates/pki/src/signer/metrics.rs")],
        prefixes: &["ovnkube_pki_"],
        page: page!("docs/pki.md"),
        alerts: page!("deploy/monitoring/pki-alerts.yaml"),
        runbook: page!("docs/runbooks/pki.md"),
        others: &[],
        fewest: 8,
    },
];

/// The words of a text that start with `ovnkube_` or `ovn_db_`.
fn named(text: &str) -> Vec<&str> {
    let words = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_' || sign == ':'));
    words.filter(|word| word.starts_with("ovnkube_") || word.starts_with("ovn_db_")).collect()
}

/// The registered name: without the suffixes of histograms and counters.
fn registered(name: &str) -> &str {
    let suffixes = ["_bucket", "_count", "_sum", "_total"];
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

/// The calls that register a metric under a literal name, from that name on.
fn registrations(role: &Role) -> impl Iterator<Item = &'static str> {
    let calls = role.sources.iter().flat_map(|source| source.1.split(".register(").skip(1));
    calls.filter(|call| call.trim_start().starts_with('"'))
}

#[test]
fn every_documented_metric_exists() {
    for role in ROLES {
        for (page, text) in [role.page, role.alerts].iter().chain(role.others) {
            let names = named(text);
            assert!(!names.is_empty(), "{page} names no metric");
            for name in names {
                let name = registered(name);
                let short = role.prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
                let is_in = |name: &str| role.sources.iter().any(|source| source.1.contains(&format!("\"{name}\"")));
                assert!(is_in(short) || is_in(name), "{page} names {name}, which is not registered");
            }
        }
    }
}

#[test]
fn every_metric_is_documented() {
    for role in ROLES {
        let page: Vec<&str> = named(role.page.1).into_iter().map(registered).collect();
        let mut count = 0;
        for piece in registrations(&role) {
            let name = piece.split('"').nth(1).unwrap();
            let known = |prefix: &&str| page.contains(&format!("{prefix}{name}").as_str());
            assert!(role.prefixes.iter().any(known) || page.contains(&name), "{} lacks {name}", role.page.0);
            count += 1;
        }
        assert!(count >= role.fewest, "only {count} metrics were found in {:?}", role.sources[0].0);
    }
}

#[test]
fn deprecated_metrics_name_their_replacement_and_no_alert_uses_them() {
    let mut count = 0;
    for role in ROLES {
        for piece in registrations(&role) {
            let mut words = piece.split('"').skip(1).step_by(2);
            let (name, help) = (words.next().unwrap(), words.next().unwrap());
            let Some(replacement) = help.strip_prefix("deprecated: use ") else { continue };
            let is_registered = role.sources.iter().any(|source| source.1.contains(&format!("\"{replacement}\"")));
            assert!(is_registered, "{replacement}, which replaces {name}, is not registered");
            let used = named(role.alerts.1).into_iter().any(|used| registered(used).ends_with(name));
            assert!(!used, "{} uses the deprecated {name}", role.alerts.0);
            count += 1;
        }
    }
    assert_eq!(count, 2, "deprecated metrics");
}

#[test]
fn every_alert_links_to_an_existing_runbook_heading() {
    let anchor = |heading: &str| heading.trim().to_lowercase().replace([',', '.', '`', '\''], "").replace(' ', "-");
    for role in ROLES {
        let (alerts, runbook) = (role.alerts.1, role.runbook.1);
        let headings: Vec<String> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
        let links: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
        assert_eq!(links.len(), alerts.matches("- alert:").count());
        for link in links {
            let (file, place) = link.split_once('#').unwrap();
            assert_eq!(file, role.runbook.0);
            assert!(headings.iter().any(|heading| heading == place), "{link}: the runbook has {headings:?}");
        }
    }
}
