//! Metrics of the signer. Those about certificates come from the leader only.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use telemetry::Telemetry;

use crate::certificate::Certificate;
use crate::chassis::{DenialReason, Record, Revoked};
use crate::domain::Domain;
use crate::findings::Finding;
use crate::plan::Step;
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
const NODE_CA: CertificateLabel = CertificateLabel { certificate: "node-ca" };
const LEAF: CertificateLabel = CertificateLabel { certificate: "control-plane" };
const CHASSIS: CertificateLabel = CertificateLabel { certificate: "chassis" };

#[derive(Debug, Default)]
pub(super) struct Metrics {
    leader: Gauge,
    expiry: Family<CertificateLabel, Gauge>,
    renewal: Family<CertificateLabel, Gauge>,
    trusted: Family<CertificateLabel, Gauge>,
    rotating: Family<CertificateLabel, Gauge>,
    problems: Family<ReasonLabel, Gauge>,
    issued: Family<CertificateLabel, Counter>,
    failures: Counter,
    chassis_issued: Counter,
    chassis_revoked: Counter,
    chassis_denied: Family<ReasonLabel, Counter>,
    chassis_open: Gauge,
    chassis: Gauge,
    chassis_expiry: Family<CertificateLabel, Gauge>,
    chassis_renewal: Family<CertificateLabel, Gauge>,
    revoked: Gauge,
    damaged: Gauge,
}

impl CertificateLabel {
    fn ca(domain: Domain) -> Self {
        match domain {
            Domain::ControlPlane => CA,
            Domain::Nodes => NODE_CA,
        }
    }
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
            metrics.register_chassis(registry);
        });
        for label in [CA, NODE_CA, LEAF] {
            drop(metrics.issued.get_or_create(&label));
        }
        // The increase of a counter that appears with its first denial cannot be seen.
        for reason in DenialReason::ALL {
            drop(metrics.chassis_denied.get_or_create(&ReasonLabel { reason: reason.text() }));
        }
        metrics
    }

    fn register_chassis(&self, registry: &mut Registry) {
        registry.register(
            "ovnkube_pki_chassis_certificates_issued",
            "Certificates that nodes requested and got",
            self.chassis_issued.clone(),
        );
        registry.register(
            "ovnkube_pki_chassis_certificates_revoked",
            "Certificates that were revoked because their Node was deleted",
            self.chassis_revoked.clone(),
        );
        registry.register(
            "ovnkube_pki_chassis_requests_denied",
            "Requests of node certificates that were denied, by the rule that they violate",
            self.chassis_denied.clone(),
        );
        registry.register(
            "ovnkube_pki_chassis_requests_pending",
            "Requests of node certificates without an answer",
            self.chassis_open.clone(),
        );
        registry.register("ovnkube_pki_chassis", "Chassis in the record of node certificates", self.chassis.clone());
        registry.register(
            "ovnkube_pki_chassis_record_damaged",
            "Chassis whose record cannot be read",
            self.damaged.clone(),
        );
        registry.register(
            "ovnkube_pki_chassis_earliest_expiry_timestamp_seconds",
            "When the first node loses its newest certificate, in seconds since 1970",
            self.chassis_expiry.clone(),
        );
        registry.register(
            "ovnkube_pki_chassis_earliest_renewal_timestamp_seconds",
            "When that node was due to renew it, in seconds since 1970",
            self.chassis_renewal.clone(),
        );
        registry.register("ovnkube_pki_revoked_certificates", "Revoked node certificates", self.revoked.clone());
    }

    pub(super) fn set_leader(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Another signer knows them now.
    pub(super) fn clear(&self) {
        self.expiry.clear();
        self.renewal.clear();
        self.problems.clear();
        self.trusted.clear();
        self.rotating.clear();
        self.chassis_expiry.clear();
        self.chassis_renewal.clear();
        for gauge in [&self.chassis_open, &self.chassis, &self.revoked, &self.damaged] {
            gauge.set(0);
        }
    }

    pub(super) fn chassis_issued(&self) {
        self.chassis_issued.inc();
    }

    pub(super) fn chassis_revoked(&self, certificates: usize) {
        self.chassis_revoked.inc_by(u64::try_from(certificates).unwrap_or(u64::MAX));
    }

    pub(super) fn chassis_denied(&self, reason: DenialReason) {
        self.chassis_denied.get_or_create(&ReasonLabel { reason: reason.text() }).inc();
    }

    pub(super) fn chassis_open(&self, open: usize) {
        self.chassis_open.set(count(open));
    }

    pub(super) fn show_record(&self, record: &Record, revoked: &Revoked) {
        self.chassis.set(count(record.claims().count()));
        self.damaged.set(count(record.damaged().count()));
        self.revoked.set(count(revoked.len()));
        match record.first_to_expire(revoked) {
            Some(first) => {
                let (issued, expiry) = (first.issued.as_second(), first.not_after.as_second());
                self.chassis_expiry.get_or_create(&CHASSIS).set(expiry);
                // Agents renew when half of the lifetime has passed.
                self.chassis_renewal.get_or_create(&CHASSIS).set(issued.midpoint(expiry));
            }
            None => {
                self.chassis_expiry.clear();
                self.chassis_renewal.clear();
            }
        }
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    pub(super) fn done(&self, domain: Domain, step: &Step) {
        match step {
            Step::Create { .. } | Step::AddNext { .. } => {
                self.issued.get_or_create(&CertificateLabel::ca(domain)).inc();
            }
            Step::Issue { .. } => _ = self.issued.get_or_create(&LEAF).inc(),
            _ => {}
        }
    }

    pub(super) fn show(&self, policy: &Policy, observed: &Observed) {
        let label = CertificateLabel::ca(observed.domain());
        let set = observed.authorities.present();
        let ca = set.map(|set| &set.signing.certificate);
        self.certificate(&label, ca, policy.ca_lifetime.saturating_sub(policy.ca_renew_after));
        let leaf = observed.issued.leaf().map(|leaf| &leaf.pair.certificate);
        self.certificate(&LEAF, leaf, policy.leaf_lifetime.saturating_sub(policy.leaf_renew_after));
        let trusted = observed.bundle.present().map_or(0, |bundle| bundle.certificates.len());
        self.trusted.get_or_create(&label).set(count(trusted));
        self.rotating.get_or_create(&label).set(set.is_some_and(|set| set.next.is_some()).into());
    }

    /// The problems of both CAs.
    pub(super) fn problems<'a>(&self, findings: impl Iterator<Item = &'a Finding>) {
        self.problems.clear();
        for finding in findings {
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

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
