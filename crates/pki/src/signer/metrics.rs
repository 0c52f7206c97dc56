//! Metrics of the signer. Those about certificates come from the leader only.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Telemetry;

use crate::certificate::Certificate;
use crate::plan::{Plan, Step};
use crate::policy::Policy;
use crate::stored::Observed;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

const CA: CertificateLabel = CertificateLabel { certificate: "ca" };
const LEAF: CertificateLabel = CertificateLabel { certificate: "control-plane" };

#[derive(Debug, Default)]
pub(super) struct Metrics {
    leader: Gauge,
    expiry: Family<CertificateLabel, Gauge>,
    renewal: Family<CertificateLabel, Gauge>,
    trusted: Gauge,
    rotating: Gauge,
    problems: Family<ReasonLabel, Gauge>,
    issued: Family<CertificateLabel, Counter>,
    failures: Counter,
}

impl Metrics {
    pub(super) fn new(telemetry: &Telemetry) -> Self {
        let metrics = Self::default();
        telemetry.registry(|registry| {
            registry.register("ovnkube_pki_leader", "1 while this signer holds the Lease", metrics.leader.clone());
            registry.register(
                "ovnkube_pki_certificate_expiry_timestamp_seconds",
                "When a certificate expires, in seconds since 1970",
                metrics.expiry.clone(),
            );
            registry.register(
                "ovnkube_pki_certificate_renewal_timestamp_seconds",
                "When a certificate is due to be renewed, in seconds since 1970",
                metrics.renewal.clone(),
            );
            registry.register("ovnkube_pki_trusted_authorities", "CAs in the bundle", metrics.trusted.clone());
            registry.register(
                "ovnkube_pki_rotation_in_progress",
                "1 while a new CA is published that does not sign yet",
                metrics.rotating.clone(),
            );
            registry.register(
                "ovnkube_pki_problem",
                "1 while a Secret or the ConfigMap has the problem of this name",
                metrics.problems.clone(),
            );
            registry.register("ovnkube_pki_issued", "CAs and certificates that were created", metrics.issued.clone());
            registry.register(
                "ovnkube_pki_reconciliation_failures",
                "Reconciliations that failed",
                metrics.failures.clone(),
            );
        });
        for label in [CA, LEAF] {
            drop(metrics.issued.get_or_create(&label));
        }
        metrics
    }

    pub(super) fn set_leader(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Another signer knows them now.
    pub(super) fn clear(&self) {
        self.expiry.clear();
        self.renewal.clear();
        self.problems.clear();
        self.trusted.set(0);
        self.rotating.set(0);
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    pub(super) fn done(&self, step: &Step) {
        match step {
            Step::Create { .. } | Step::AddNext { .. } => _ = self.issued.get_or_create(&CA).inc(),
            Step::Issue { .. } => _ = self.issued.get_or_create(&LEAF).inc(),
            _ => {}
        }
    }

    pub(super) fn show(&self, policy: &Policy, plan: &Plan, observed: &Observed) {
        let set = observed.authorities.present();
        let ca = set.map(|set| &set.signing.certificate);
        self.certificate(&CA, ca, policy.ca_lifetime.saturating_sub(policy.ca_renew_after));
        let leaf = observed.leaf.present().map(|leaf| &leaf.pair.certificate);
        self.certificate(&LEAF, leaf, policy.leaf_lifetime.saturating_sub(policy.leaf_renew_after));
        let trusted = observed.bundle.present().map_or(0, |bundle| bundle.certificates.len());
        self.trusted.set(i64::try_from(trusted).unwrap_or(i64::MAX));
        self.rotating.set(set.is_some_and(|set| set.next.is_some()).into());
        self.problems.clear();
        for finding in &plan.findings {
            self.problems.get_or_create(&ReasonLabel { reason: finding.kind.reason() }).set(1);
        }
    }

    /// A certificate that cannot be read keeps its former values: it expires all the same.
    fn certificate(&self, label: &CertificateLabel, certificate: Option<&Certificate>, overlap: Duration) {
        let Some(certificate) = certificate else { return };
        let expiry = certificate.not_after.as_second();
        self.expiry.get_or_create(label).set(expiry);
        let overlap = i64::try_from(overlap.as_secs()).unwrap_or(i64::MAX);
        self.renewal.get_or_create(label).set(expiry.saturating_sub(overlap));
    }
}
