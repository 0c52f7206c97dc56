//! Metrics of the node's certificate.

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Telemetry;

#[derive(Debug, Default)]
pub(super) struct CertificateMetrics {
    expiry: Gauge,
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

    pub(super) fn expires(&self, at: Option<Timestamp>) {
        self.expiry.set(at.map_or(0, Timestamp::as_second));
    }
}
