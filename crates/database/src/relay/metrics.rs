//! Metrics of a relay.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Telemetry;

#[derive(Debug)]
pub(super) struct RelayMetrics {
    connected: Gauge,
    sessions: Gauge,
    restarts: Counter,
}

impl RelayMetrics {
    pub(super) fn new(telemetry: &Telemetry) -> Self {
        let metrics = Self { connected: Gauge::default(), sessions: Gauge::default(), restarts: Counter::default() };
        telemetry.registry(|registry| {
            registry.register(
                "ovn_db_relay_connected",
                "1 while the relay has a complete copy and its upstream executes writes",
                metrics.connected.clone(),
            );
            registry.register("ovn_db_relay_sessions", "Clients of the relay", metrics.sessions.clone());
            registry.register(
                "ovn_db_relay_restarts",
                "Restarts of the relay's ovsdb-server by its manager",
                metrics.restarts.clone(),
            );
        });
        metrics
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.connected.set(connected.into());
    }

    pub(super) fn set_sessions(&self, sessions: Option<i64>) {
        if let Some(sessions) = sessions {
            self.sessions.set(sessions);
        }
    }

    pub(super) fn restarted(&self) {
        self.restarts.inc();
    }
}
