//! Writes on Nodes what their agents cannot know or cannot say: that the agent is silent, that the chassis lags behind.

use std::time::Duration;

use kubernetes::{Api, Patch};
use serde_json::{Value, json};
use topology::Engine;
use topology::engine::ObjectRef;
use topology::objects::{EXPECTED_NB_CFG, NETWORK_READY};
use topology::watchdog::{Applied, Finding, Watchdog};

use crate::databases;
use crate::outlet::Outlet;

/// The watchdog, and where its findings go.
pub(crate) struct NodeWatch {
    watchdog: Watchdog,
    api: Api,
}

impl NodeWatch {
    pub(crate) fn new(api: &Api) -> Self {
        Self { watchdog: Watchdog::default(), api: api.clone() }
    }

    /// Looks at all nodes; to be called once a second.
    pub(crate) fn look(&mut self, engine: &Engine, outlet: &Outlet, now: Duration) {
        if !engine.is_leading() {
            self.watchdog.clear();
            return;
        }
        // A replica that is not kept up to date would accuse nodes of what only we have missed.
        let connected = outlet.southbound.status().borrow().connected;
        let progress = connected.then(|| outlet.southbound.snapshot()).as_ref().and_then(databases::progress);
        let applied = progress.as_ref().map(|(chassis, southbound)| Applied { southbound: *southbound, chassis });
        let nodes: Vec<_> = engine.store().nodes().collect();
        for finding in self.watchdog.look(&nodes, applied, now) {
            self.carry_out(finding, outlet);
        }
    }

    fn carry_out(&self, finding: Finding, outlet: &Outlet) {
        match finding {
            Finding::Silent { node, heartbeat, silent } => {
                let message = format!(
                    "the node agent has not renewed this condition since {heartbeat}: whether pods can be wired is unknown; \
                     look at the container ovnkube-node of the node's ovnkube pod"
                );
                let seconds = silent.as_secs();
                tracing::warn!(node = &*node.name, heartbeat = &*heartbeat, seconds, "node agent is silent");
                outlet.record(node.clone(), "NodeAgentSilent", message.clone());
                // The heartbeat stays: it is the agent's.
                let condition = json!({"type": NETWORK_READY, "status": "Unknown", "reason": "NodeAgentSilent",
                    "message": message, "lastTransitionTime": kubernetes::timestamp()});
                self.patch(&node, json!({"metadata": {"uid": &*node.uid}, "status": {"conditions": [condition]}}));
            }
            Finding::Expect { node, number, applied } => {
                tracing::warn!(
                    node = &*node.name,
                    nb_cfg = number,
                    applied,
                    "chassis lags behind the southbound database; its agent is asked to check"
                );
                let annotations = json!({EXPECTED_NB_CFG: number.to_string()});
                self.patch(&node, json!({"metadata": {"uid": &*node.uid, "annotations": annotations}}));
            }
        }
    }

    /// Writes once: what is still true is found again.
    fn patch(&self, node: &ObjectRef, body: Value) {
        let (api, name) = (self.api.clone(), node.name.clone());
        tokio::spawn(async move {
            let path = format!("/api/v1/nodes/{name}/status");
            if let Err(error) = api.patch(&path, Patch::Strategic, body.to_string().into_bytes()).await {
                tracing::warn!(node = &*name, %error, "node status write failed; retrying in 10s while it is still true");
            }
        });
    }
}
