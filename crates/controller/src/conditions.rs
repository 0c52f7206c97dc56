//! What the controller's readiness and liveness depend on.

use std::time::Duration;

use telemetry::{Condition, Health, Heartbeat};

use crate::connection_state::ConnectionState;

/// `/livez` fails if the loop makes no progress for this long.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// `/livez` fails if the northbound database is down for this long, so that kubelet restarts the process. A missing API only
/// makes it not ready: watches recover without a restart.
const NB_DOWN_LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Conditions {
    pub(crate) objects: Condition,
    pub(crate) northbound: ConnectionState,
    pub(crate) southbound: ConnectionState,
    pub(crate) alive: Heartbeat,
    pub(crate) northbound_up: Heartbeat,
}

impl Conditions {
    pub(crate) fn new(health: &Health) -> Self {
        let conditions = Self {
            objects: health.condition("objects"),
            northbound: ConnectionState::new("northbound", health.condition("northbound database")),
            southbound: ConnectionState::new("southbound", health.condition("southbound database")),
            alive: health.heartbeat("controller", STALL_LIMIT),
            northbound_up: health.heartbeat("northbound database", NB_DOWN_LIMIT),
        };
        conditions.objects.not_ready("objects are not listed yet");
        conditions
    }
}
