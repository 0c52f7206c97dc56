//! Writes findings of the watchdog on Nodes: a silent agent, a chassis that lags behind.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubernetes::{Api, Patch};
use objects::{EXPECTED_NB_CFG, NETWORK_READY, ObjectKind};
use serde_json::{Value, json};
use topology::engine::ObjectRef;
use topology::pacing;
use topology::watchdog::{Applied, LaggingNode, Watchdog};
use topology::{Engine, Observed};

use crate::api_contact::{ApiContact, ContactChange, Evidence};
use crate::databases;
use crate::effect_runner::EffectRunner;
use crate::watches::WatchEvent;

/// Shortest time without a renewal of the Lease, or with a failed watch, that counts as loss of contact with the API server.
/// Together with an agent's interval it must be less than the age at which heartbeats expire.
const SHORTEST_LOSS: Duration = Duration::from_secs(20);

/// Runs the watchdog and reports its findings.
pub(crate) struct NodeWatch {
    watchdog: Watchdog,
    contact: ApiContact,
    /// Since when the watch of nodes has failed.
    watch_failed: Option<Duration>,
    /// Time without a renewal of the leader Lease after which contact with the API server is lost.
    contact_limit: Duration,
    api: Api,
}

impl NodeWatch {
    /// `lease` is the duration of the leader Lease.
    pub(crate) fn new(api: &Api, lease: Duration) -> Self {
        Self {
            watchdog: Watchdog::default(),
            contact: ApiContact::default(),
            watch_failed: None,
            contact_limit: lease.max(SHORTEST_LOSS),
            api: api.clone(),
        }
    }

    /// Notes whether the watch of nodes works.
    pub(crate) fn observe(&mut self, event: Option<&WatchEvent>, now: Duration) {
        match event {
            Some(WatchEvent::Failed(ObjectKind::Node, _)) => _ = self.watch_failed.get_or_insert(now),
            Some(WatchEvent::Resumed(ObjectKind::Node)) => self.watch_failed = None,
            Some(WatchEvent::Objects(objects))
                if objects.iter().any(|observed| matches!(observed, Observed::Listed(ObjectKind::Node))) =>
            {
                self.watch_failed = None;
            }
            _ => {}
        }
    }

    /// Checks all nodes; to be called once a second. `renewed` is the time of the last renewal of the leader Lease.
    pub(crate) fn check(&mut self, engine: &Engine, effects: &EffectRunner, renewed: Option<Duration>, now: Duration) {
        if !engine.is_leading() {
            self.watchdog.clear();
            self.contact = ApiContact::default();
            return;
        }
        // A stale replica would blame nodes for what only this instance missed.
        let connected = effects.southbound.status().borrow().connected;
        let progress = connected.then(|| effects.southbound.snapshot()).as_ref().and_then(databases::progress);
        let applied = progress.as_ref().map(|(chassis, southbound)| Applied { southbound: *southbound, chassis });
        let nodes: Vec<_> = engine.store().nodes().collect();
        self.update_contact(nodes.len(), renewed, now);
        for lagging in self.watchdog.check(&nodes, applied, self.contact.may_judge(), now) {
            self.report(lagging, effects);
        }
    }

    /// Without the API server, this instance would blame nodes for heartbeats that only it missed.
    fn update_contact(&mut self, nodes: usize, renewed: Option<Duration>, now: Duration) {
        let evidence = Evidence { watch_failed: self.watch_failed, renewed, limit: self.contact_limit };
        let (contact, change) = self.contact.next(evidence, now, pacing::heartbeat_expires(nodes));
        self.contact = contact;
        match change {
            Some(ContactChange::Lost(since)) => {
                let since = ago(now.saturating_sub(since)).unwrap_or_default();
                tracing::warn!(
                    "heartbeats of node agents are not checked: no contact with the API server since {since}; waiting for it"
                );
            }
            Some(ContactChange::Judging) => {
                tracing::info!("heartbeats of node agents are checked again: in contact with the API server");
            }
            None => {}
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
                tracing::warn!(node = &*name, %error, "cannot write the Node's status; retrying in 10s if its agent is still silent or behind");
            }
        });
    }
}

/// The time of day that was this long ago.
fn ago(age: Duration) -> Option<String> {
    let since_1970 = SystemTime::now().checked_sub(age)?.duration_since(UNIX_EPOCH).ok()?;
    kubernetes::timestamp_of_milliseconds(since_1970.as_millis().try_into().ok()?)
}
