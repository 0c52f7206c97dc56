//! Queries to a lab's Prometheus: which alerts fire, which targets are scraped.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::PORT;
use crate::error::{Error, Result};
use crate::machine::Machine;

/// Interval of polling: Prometheus has no API to wait for an alert.
const PAUSE: Duration = Duration::from_millis(500);

/// Client of a lab's Prometheus; each query is one HTTP request from the machine `control`.
#[derive(Debug, Clone)]
pub struct Prometheus {
    control: Machine,
}

/// State of an active alert; an inactive one is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    /// Its expression is true, but not for long enough.
    Pending,
    /// Its expression has been true for its `for`.
    Firing,
}

/// One active alert: a rule has one for each set of labels.
#[derive(Debug, Clone, Deserialize)]
pub struct Alert {
    /// Labels of the rule and of its expression, and `alertname`.
    pub labels: std::collections::BTreeMap<String, String>,
    /// At the time of the request.
    pub state: AlertState,
}

impl Alert {
    /// The label `alertname`; empty if it is missing.
    pub fn name(&self) -> &str {
        self.labels.get("alertname").map_or("", String::as_str)
    }
}

impl Prometheus {
    pub(crate) fn on(control: Machine) -> Self {
        Self { control }
    }

    fn get(&self, path: &str, query: Option<&str>) -> Result<Value> {
        let url = format!("http://localhost:{PORT}/api/v1/{path}");
        let query = query.map(|query| format!("query={query}"));
        let mut args = vec!["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "20", "--get", &url];
        if let Some(query) = &query {
            args.extend(["--data-urlencode", query]);
        }
        let text = self.control.run(&args)?;
        let answer: Value = serde_json::from_str(&text)
            .map_err(|error| Error::Invalid(format!("invalid response of Prometheus: {error}: {text}")))?;
        Ok(answer["data"].clone())
    }

    /// Active alerts, pending ones included.
    pub fn alerts(&self) -> Result<Vec<Alert>> {
        let alerts = self.get("alerts", None)?["alerts"].take();
        serde_json::from_value(alerts).map_err(|error| Error::Invalid(format!("invalid alerts of Prometheus: {error}")))
    }

    /// The result of an instant query: each series with its value.
    pub fn query(&self, expression: &str) -> Result<Vec<(Value, f64)>> {
        let result = self.get("query", Some(expression))?;
        let series = result["result"].as_array().cloned().unwrap_or_default();
        let value = |one: &Value| one["value"][1].as_str().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
        Ok(series.iter().map(|one| (one["metric"].clone(), value(one))).collect())
    }

    /// Waits until each of these alerts has fired since a moment, not necessarily all at the same time: some resolve by
    /// themselves.
    pub fn await_firing(&self, names: &[&str], since: Instant, limit: Duration) -> Result<()> {
        self.wait(limit, || {
            let seconds = since.elapsed().as_secs() + 1;
            let fired = self.query(&format!("max_over_time(ALERTS{{alertstate=\"firing\"}}[{seconds}s])"))?;
            let has_fired = |name: &&str| fired.iter().any(|(alert, _)| alert["alertname"] == **name);
            Ok(names.iter().find(|name| !has_fired(name)).map(|name| format!("{name} does not fire")))
        })
    }

    /// Waits until none of these alerts is active.
    pub fn await_resolved(&self, names: &[&str], limit: Duration) -> Result<()> {
        self.wait(limit, || {
            let alerts = self.alerts()?;
            let active = alerts.iter().find(|alert| names.contains(&alert.name()));
            Ok(active.map(|alert| format!("{} is not resolved", alert.name())))
        })
    }

    /// Waits until `missing` finds nothing missing.
    fn wait(&self, limit: Duration, missing: impl Fn() -> Result<Option<String>>) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let Some(missing) = missing()? else { return Ok(()) };
            if Instant::now() >= deadline {
                let alerts = self.alerts()?;
                let active: Vec<String> = alerts
                    .iter()
                    .map(|alert| format!("{} {:?} {:?}", alert.name(), alert.state, alert.labels))
                    .collect();
                return Err(Error::Invalid(format!(
                    "{missing} after {} s; active alerts:\n{}",
                    limit.as_secs(),
                    active.join("\n")
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }
}
