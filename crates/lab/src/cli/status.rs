//! `lab status`: machines, components and pods.

use std::process::Command;

use console::table::{self, Cell, Tone};
use serde::Serialize;
use serde_json::Value;

use super::print;
use super::show::{Output, components_on, how_to_use};
use crate::error::{Error, Result};
use crate::record::{ComponentRecord, Phase, Record};

/// Limit of the question to the API server: the status of a broken lab must come, too.
const API_LIMIT: &str = "--request-timeout=3s";

#[derive(Serialize)]
struct Status<'a> {
    #[serde(flatten)]
    record: &'a Record,
    components_running: usize,
    components_paused: Vec<&'a str>,
    components_down: Vec<&'a str>,
    /// None if the lab has no Kubernetes, or if its API server does not answer.
    pods: Option<Vec<PodState>>,
}

/// A pod as the API server has it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct PodState {
    namespace: String,
    name: String,
    node: String,
    /// `Ready`, else why it is not.
    state: String,
    address: String,
}

impl PodState {
    fn parse(pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = &pod["status"];
        let waiting = status["containerStatuses"].as_array().into_iter().flatten().find_map(|container| {
            let state = &container["state"];
            state["waiting"]["reason"].as_str().or_else(|| state["terminated"]["reason"].as_str())
        });
        let ready = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let state = match (ready, waiting, status["phase"].as_str()) {
            (true, ..) => "Ready".to_owned(),
            (_, Some(reason), _) => reason.to_owned(),
            (_, None, Some("Running")) => "not ready".to_owned(),
            (_, None, phase) => phase.unwrap_or("unknown").to_owned(),
        };
        let metadata = &pod["metadata"];
        Self {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            node: text(&pod["spec"]["nodeName"]),
            state,
            address: text(&status["podIP"]),
        }
    }

    fn row(&self) -> [Cell; 5] {
        let tone = if matches!(self.state.as_str(), "Ready" | "Succeeded") { Tone::Good } else { Tone::Bad };
        [
            Cell::plain(&self.namespace),
            Cell::plain(&self.name),
            Cell::plain(&self.node),
            Cell::new(&self.state, tone),
            Cell::plain(&self.address),
        ]
    }
}

/// The pods, or why they are not known; none if the lab has no Kubernetes.
fn pods(record: &Record) -> Option<Result<Vec<PodState>, String>> {
    let (programs, kubeconfig) = (record.kubernetes.as_ref()?, record.endpoints.kubeconfig.as_ref()?);
    let mut command = Command::new(programs.join("kubectl"));
    command.args(["get", "pods", "--all-namespaces", "--output=json", API_LIMIT]).env("KUBECONFIG", kubeconfig);
    let output = match command.output() {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            return Some(Err(error.lines().last().unwrap_or("kubectl failed").to_owned()));
        }
        Err(error) => return Some(Err(format!("cannot run kubectl: {error}"))),
    };
    let list: Value = match serde_json::from_slice(&output) {
        Ok(list) => list,
        Err(error) => return Some(Err(format!("cannot read the answer: {error}"))),
    };
    Some(Ok(list["items"].as_array().into_iter().flatten().map(PodState::parse).collect()))
}

fn names_of(record: &Record, with: impl Fn(Option<char>) -> bool) -> Vec<&str> {
    let found = record.components.iter().filter(|component| with(component.process.state()));
    found.map(|component| component.name.as_str()).collect()
}

pub(super) fn status(record: &Record, output: Output) -> Result<()> {
    let down = names_of(record, |state| matches!(state, None | Some('Z')));
    let paused = names_of(record, |state| state == Some('T'));
    let pods = pods(record);
    if output.is_json() {
        let status = Status {
            record,
            components_running: record.components.len() - down.len() - paused.len(),
            components_paused: paused,
            components_down: down,
            pods: pods.and_then(Result::ok),
        };
        return console::print_json(&status).map_err(|error| Error::Invalid(error.to_string()));
    }
    let colour = table::colour();
    let phase = match record.phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Stopping => "stopping",
    };
    let mut health = Vec::new();
    for (what, names) in [("down", &down), ("paused", &paused)] {
        if !names.is_empty() {
            health.push(format!("{what}: {}", names.join(", ")));
        }
    }
    let health = if health.is_empty() { "all components run".to_owned() } else { health.join(" · ") };
    print(&format!("lab {} on {} · {phase} · {health}\n\n", record.name, record.spec.suite.as_str()))?;
    let rows = record.machines.iter().map(|machine| {
        let alive = machine.init.is_alive();
        let state = if alive { Cell::new("up", Tone::Good) } else { Cell::new("down", Tone::Bad) };
        [
            Cell::plain(&machine.name),
            state,
            Cell::plain(machine.addresses.join(" ")),
            Cell::plain(components_on(record, &machine.name)),
        ]
    });
    print(&table::render(["MACHINE", "STATE", "ADDRESSES", "RUNS"], rows.collect(), colour))?;
    print("\n")?;
    print(&table::render(
        ["COMPONENT", "MACHINE", "PID", "STATE", "MEMORY"],
        record.components.iter().map(component_row).collect(),
        colour,
    ))?;
    print("\n")?;
    match pods {
        None => {}
        Some(Err(error)) => print(&format!("pods: unknown, the API server does not answer: {error}\n\n"))?,
        Some(Ok(pods)) => {
            let rows = pods.iter().map(PodState::row).collect();
            print(&table::render(["NAMESPACE", "POD", "NODE", "STATE", "ADDRESS"], rows, colour))?;
            print("\n")?;
        }
    }
    how_to_use(record)
}

fn component_row(component: &ComponentRecord) -> [Cell; 5] {
    let state = match (component.process.state(), &component.ended) {
        (Some('T'), _) => Cell::new("paused (SIGSTOP)", Tone::Bad),
        (Some(state), _) if state != 'Z' => Cell::new("running", Tone::Good),
        (_, Some(ended)) => Cell::new(ended, Tone::Bad),
        _ => Cell::new("ended", Tone::Bad),
    };
    let memory = component.process.resident_kib().map_or_else(String::new, |kib| format!("{} MiB", kib / 1024));
    [
        Cell::plain(&component.name),
        Cell::plain(&component.machine),
        Cell::plain(component.process.pid.to_string()),
        state,
        Cell::plain(memory),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_not_ready_says_why() {
        let pod = |status: Value| {
            PodState::parse(&json!({
                "metadata": {"namespace": "shop", "name": "web"}, "spec": {"nodeName": "n1"}, "status": status
            }))
            .state
        };
        assert_eq!(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})), "Ready");
        assert_eq!(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]})), "not ready");
        let waiting =
            json!({"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
        assert_eq!(pod(waiting), "CrashLoopBackOff");
        assert_eq!(pod(json!({"phase": "Pending"})), "Pending");
        assert_eq!(pod(json!({})), "unknown");
    }
}
