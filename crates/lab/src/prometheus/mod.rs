//! Prometheus (Debian's) beside a lab's cluster: it finds our pods through the API server, scrapes them over TLS with the
//! token of a ServiceAccount, and evaluates the rules of `deploy/monitoring`, as a cluster's Prometheus does.
//!
//! ```text
//!   deploy/monitoring/*-alerts.yaml ──▶ rules (optionally with compressed time) ─┐
//!   deploy/monitoring/service-monitor.yaml ──▶ scrape configuration ─────────────┴─▶ prometheus on machine `control`
//! ```

mod durations;
mod programs;
mod queries;
mod rules;
mod scrape_config;

use std::path::Path;

use serde_json::{Value, json};

use crate::control_plane::API_PORT;
use crate::error::{Error, Result, create_dir, read_file, write_file};
use crate::machine::Machine;
use crate::ready::Ready;
use crate::signed::NODE_AUTHORITY;
use crate::supervisor::{Component, Supervisor};
use crate::underlay::{CONTROL, bracketed};

pub use programs::Programs;
pub use queries::{Alert, AlertState, Prometheus};
pub use rules::{alert_names, rule_groups, rules_file};

/// Port of Prometheus on the control machine.
pub(crate) const PORT: u16 = 9090;

const SERVICES: &str = include_str!("../../../../deploy/monitoring/services.yaml");
const ACCOUNT: &str = include_str!("../../../../lab/prometheus/account.yaml");
const SERVICE_MONITOR: &str = include_str!("../../../../deploy/monitoring/service-monitor.yaml");

/// Starts Prometheus on the control machine; `compression` divides all times of the rules.
pub(crate) fn start(supervisor: &Supervisor, programs: &Programs, compression: u32) -> Result<()> {
    let dir = supervisor.dir().join("prometheus");
    create_dir(&dir)?;
    write_file(&dir.join("rules.json"), rules_file(compression)?)?;
    let targets = &supervisor.spec.scrape_targets;
    let scrapes = if targets.is_empty() {
        scrapes_of_pods(supervisor, &dir, &interval(compression))?
    } else {
        vec![scrape_config::of_targets(targets)]
    };
    write_file(&dir.join("prometheus.json"), configuration(&dir, &interval(compression), &scrapes).to_string())?;
    let program = programs.prometheus().display().to_string();
    let args = [
        program.as_str(),
        &format!("--config.file={}", dir.join("prometheus.json").display()),
        "--storage.tsdb.path=/var/lib/lab-prometheus",
        &format!("--web.listen-address=:{PORT}"),
    ];
    let ready = Ready::Log("Server is ready to receive web requests".into());
    supervisor.start(Component::new("prometheus", CONTROL, ready, &args))
}

/// Creates what a cluster's Prometheus needs to find and scrape our pods.
fn scrapes_of_pods(supervisor: &Supervisor, dir: &Path, interval: &str) -> Result<Vec<Value>> {
    let control = supervisor.machine(CONTROL)?;
    control.run_with_input(&["kubectl", "apply", "-f", "-"], &format!("{SERVICES}---\n{ACCOUNT}"))?;
    write_file(&dir.join("token"), token(&control)?)?;
    let pki = supervisor.dir().join("pki/ovn");
    // Without a signer nodes have a certificate of the same CA.
    let of_nodes = Some(pki.join(NODE_AUTHORITY)).filter(|file| file.exists()).unwrap_or_else(|| pki.join("ca.crt"));
    for (config_map, file) in [("ovn-ca", pki.join("ca.crt")), ("ovn-node-ca", of_nodes)] {
        write_file(&dir.join(format!("{config_map}.crt")), read_file(&file)?)?;
    }
    let access = scrape_config::ApiAccess {
        server: &format!("https://{}:{API_PORT}", bracketed(supervisor.plan.primary(CONTROL)?)),
        authority: &supervisor.dir().join("kubernetes/pki/ca.crt"),
        token: &dir.join("token"),
        target_authorities: dir,
    };
    scrape_config::of_service_monitor(&yaml(SERVICE_MONITOR)?, &access, interval)
}

fn token(control: &Machine) -> Result<String> {
    let args = ["kubectl", "-n", "monitoring", "create", "token", "prometheus", "--duration=24h"];
    Ok(control.run(&args)?.trim().to_owned())
}

/// Interval of scrapes and evaluations. Not below two seconds: a scrape must end within it, on a busy machine, too.
fn interval(compression: u32) -> String {
    format!("{}s", (30 / compression.max(1)).max(2))
}

fn configuration(dir: &Path, interval: &str, scrapes: &[Value]) -> Value {
    json!({
        "global": { "scrape_interval": interval, "evaluation_interval": interval, "scrape_timeout": interval },
        "rule_files": [dir.join("rules.json")],
        "scrape_configs": scrapes,
    })
}

fn yaml(text: &str) -> Result<Value> {
    serde_saphyr::from_str(text).map_err(|error| Error::Invalid(format!("invalid YAML in deploy/monitoring: {error}")))
}
