//! What few pods ask for: limits, and ports of their nodes, some of which others have.

use serde_json::{Value, json};

use crate::support::api::{Api, Key};

/// A pod gets other limits, or ones that cannot be read.
pub(crate) fn limit(api: &mut Api, pod: &Key, limit: &str) {
    let directions: &[&str] = if limit.len().is_multiple_of(2) { &["ingress", "egress"] } else { &["egress"] };
    api.change(pod, |pod| {
        for direction in directions {
            pod["metadata"]["annotations"][format!("kubernetes.io/{direction}-bandwidth")] = json!(limit);
        }
    });
}

/// A port of the node leads to this port of a container; the first two are node ports of Services at times.
pub(crate) fn open(port: &mut Value, number: u16, address: usize) {
    port["hostPort"] = json!(30_000 + number);
    port["hostIP"] = json!(["", "0.0.0.0", "192.0.2.10"][address % 3]);
}
