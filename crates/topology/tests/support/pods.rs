//! Optional pod settings: bandwidth limits and host ports, some of them contested.

use serde_json::{Value, json};

use crate::support::api::{Api, Key};

/// Sets bandwidth limits, some of them invalid.
pub(crate) fn limit(api: &mut Api, pod: &Key, limit: &str) {
    let directions: &[&str] = if limit.len().is_multiple_of(2) { &["ingress", "egress"] } else { &["egress"] };
    api.change(pod, |pod| {
        for direction in directions {
            pod["metadata"]["annotations"][format!("kubernetes.io/{direction}-bandwidth")] = json!(limit);
        }
    });
}

/// Adds a host port to a container port; some are node ports of Services.
pub(crate) fn open(port: &mut Value, number: u16, address: usize) {
    port["hostPort"] = json!(30_000 + number);
    port["hostIP"] = json!(["", "0.0.0.0", "192.0.2.10"][address % 3]);
}
