//! Metrics of the listener for nodes.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Telemetry;

use super::refusal::Reason;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: Reason,
}

/// Handles of all metrics; clones share their values.
#[derive(Debug, Clone)]
pub(crate) struct NodeMetrics {
    pub(super) sessions: Gauge,
    pub(super) listening: Gauge,
    refused: Family<ReasonLabels, Counter>,
    closed: Counter,
}

impl NodeMetrics {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        let metrics = Self::unregistered();
        telemetry.registry(|registry| {
            registry.register(
                "ovn_db_node_sessions",
                "Sessions of nodes through the listener for nodes",
                metrics.sessions.clone(),
            );
            registry.register("ovn_db_node_listening", "1 while the port for nodes is open", metrics.listening.clone());
            registry.register(
                "ovn_db_node_refusals",
                "Connections to the port for nodes that were refused",
                metrics.refused.clone(),
            );
            registry.register(
                "ovn_db_node_sessions_closed",
                "Sessions that were closed because their certificate is not accepted any more",
                metrics.closed.clone(),
            );
        });
        metrics
    }

    pub(super) fn unregistered() -> Self {
        let refused = Family::<ReasonLabels, Counter>::default();
        // `increase` needs a first value.
        for reason in Reason::ALL {
            let _ = refused.get_or_create(&ReasonLabels { reason });
        }
        Self { sessions: Gauge::default(), listening: Gauge::default(), refused, closed: Counter::default() }
    }

    pub(super) fn refused(&self, reason: Reason) {
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(super) fn closed(&self) {
        self.closed.inc();
    }

    #[cfg(test)]
    pub(super) fn refusals(&self, reason: Reason) -> u64 {
        self.refused.get_or_create(&ReasonLabels { reason }).get()
    }
}
