//! Metrics of the node's certificate.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Telemetry;

use super::decision::renewal;
use super::files::Held;

#[derive(Debug, Default)]
pub(super) struct CertificateMetrics {
    expiry: Gauge,
    renewal: Gauge,
    pub(super) renewals: Counter,
    pub(super) failures: Counter,
}

impl CertificateMetrics {
    pub(super) fn register(telemetry: &Telemetry) -> Self {
        let metrics = Self::default();
        telemetry.registry(|registry| {
            let own = registry.sub_registry_with_prefix("ovnkube_node");
            own.register(
                "certificate_expiry_timestamp_seconds",
                "When this node's certificate expires; 0 without one",
                metrics.expiry.clone(),
            );
            own.register(
                "certificate_renewal_timestamp_seconds",
                "When this node's certificate is due to be renewed; 0 without one",
                metrics.renewal.clone(),
            );
            own.register(
                "certificate_renewals",
                "Certificates of this node that were issued and stored, the first one included",
                metrics.renewals.clone(),
            );
            own.register(
                "certificate_failures",
                "Attempts to get a certificate for this node that failed: refused, invalid, not stored, or without the API server",
                metrics.failures.clone(),
            );
        });
        metrics
    }

    /// Shows the certificate in use.
    pub(super) fn show(&self, held: Option<&Held>, node: &str) {
        self.expiry.set(held.map_or(0, |held| held.own.certificate.not_after.as_second()));
        self.renewal.set(held.map_or(0, |held| renewal(held, node).as_second()));
    }
}
