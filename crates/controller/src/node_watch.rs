//! Writes findings of the watchdog on Nodes: a silent agent, a chassis that lags behind.

use std::time::Duration;

use kubernetes::{Api, Patch};
use objects::{EXPECTED_NB_CFG, NETWORK_READY};
use serde_json::{Value, json};
use topology::Engine;
use topology::engine::ObjectRef;
use topology::watchdog::{Applied, LaggingNode, Watchdog};

use crate::databases;
use crate::effect_runner::EffectRunner;

/// Runs the watchdog and reports its findings.
pub(crate) struct NodeWatch {
    watchdog: Watchdog,
    api: Api,
}

impl NodeWatch {
    pub(crate) fn new(api: &Api) -> Self {
        Self { watchdog: Watchdog::default(), api: api.clone() }
    }

    /// Checks all nodes; to be called once a second.
    pub(crate) fn check(&mut self, engine: &Engine, effects: &EffectRunner, now: Duration) {
        if !engine.is_leading() {
            self.watchdog.clear();
            return;
        }
        // A stale replica would blame nodes for what only this instance missed.
        let connected = effects.southbound.status().borrow().connected;
        let progress = connected.then(|| effects.southbound.snapshot()).as_ref().and_then(databases::progress);
        let applied = progress.as_ref().map(|(chassis, southbound)| Applied { southbound: *southbound, chassis });
        let nodes: Vec<_> = engine.store().nodes().collect();
        for lagging in self.watchdog.check(&nodes, applied, now) {
            self.report(lagging, effects);
        }
    }

    fn report(&self, lagging: LaggingNode, effects: &EffectRunner) {
        match lagging {
            LaggingNode::Silent { node, heartbeat, silent } => {
                let message = format!(
                    "the node agent has not renewed this condition since {heartbeat}: whether pods can be connected is \
                     unknown; check the container ovnkube-node of the node's ovnkube pod"
                );
                let seconds = silent.as_secs();
                tracing::warn!(
                    node = &*node.name,
                    heartbeat = &*heartbeat,
                    seconds,
                    "node agent is silent; setting its condition to Unknown"
                );
                effects.record(node.clone(), "NodeAgentSilent", message.clone());
                // Without the heartbeat, which only the agent writes.
                let condition = json!({"type": NETWORK_READY, "status": "Unknown", "reason": "NodeAgentSilent",
                    "message": message, "lastTransitionTime": kubernetes::timestamp()});
                self.patch(&node, json!({"metadata": {"uid": &*node.uid}, "status": {"conditions": [condition]}}));
            }
            LaggingNode::Expect { node, number, applied } => {
                tracing::warn!(
                    node = &*node.name,
                    nb_cfg = number,
                    applied,
                    "chassis lags behind the southbound database; requesting a check by its agent"
                );
                let annotations = json!({EXPECTED_NB_CFG: number.to_string()});
                self.patch(&node, json!({"metadata": {"uid": &*node.uid, "annotations": annotations}}));
            }
        }
    }

    /// Writes once: the watchdog reports a node again that still lags.
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
