//! Logs and Events about steps and problems.

use std::collections::BTreeMap;

use kubernetes::{Api, Note, ObjectReference, Recorder, Severity};

use crate::chassis::{ChassisRequest, Claim, Denial, Grant, KnownNode, NodeCertificate};
use crate::domain::Domain;
use crate::findings::Finding;
use crate::plan::Step;
use crate::signer::store::Objects;

/// Component in Events.
const COMPONENT: &str = "ovnkube-pki";

pub(super) struct Notices {
    recorder: Recorder,
    namespace: String,
    /// Findings that were reported, until they are resolved.
    reported: BTreeMap<Domain, Vec<Finding>>,
}

impl Notices {
    pub(super) fn new(api: &Api, namespace: &str, identity: &str) -> Self {
        let recorder = Recorder::new(api, COMPONENT, identity);
        Self { recorder, namespace: namespace.to_owned(), reported: BTreeMap::new() }
    }

    /// Reports new findings, each once.
    pub(super) fn findings(&mut self, findings: &[Finding], objects: &Objects) {
        let domain = objects.observed.domain();
        let reported = self.reported.insert(domain, findings.to_vec()).unwrap_or_default();
        for finding in findings {
            if reported.contains(finding) {
                continue;
            }
            let object = objects.reference(finding.object, &self.namespace);
            tracing::warn!(
                object = format!("{} {}", object.kind, object.name),
                reason = finding.kind.reason(),
                error = finding.message,
                "certificates need attention"
            );
            self.record(object, Severity::Warning, finding.kind.reason(), finding.message.clone());
        }
    }

    /// Reports a clock that is wrong.
    pub(super) fn clock(&self, message: &str) {
        let object = ObjectReference {
            api_version: "v1".into(),
            kind: "Secret".into(),
            namespace: self.namespace.clone(),
            name: crate::CA_SECRET.into(),
            uid: String::new(),
        };
        self.record(object, Severity::Warning, "ClockWrong", message.to_owned());
    }

    /// Reports a step that was carried out.
    pub(super) fn step(&self, step: &Step, object: ObjectReference) {
        let (reason, message) = match step {
            Step::Create { adopt } if adopt.is_empty() => ("AuthorityCreated", "created a CA".to_owned()),
            Step::Create { adopt } => {
                let former = adopt.iter().map(|former| former.certificate.subject.as_str()).collect::<Vec<_>>();
                let message = format!("the Secret was missing: created a new CA; still trusted: {}", former.join(", "));
                ("AuthorityCreated", message)
            }
            Step::AddNext { why } => ("NextAuthorityCreated", format!("created the next CA ({why})")),
            Step::Promote { retire_after } => {
                ("AuthorityRotated", format!("the next CA signs now; the former one is trusted until {retire_after}"))
            }
            Step::Adopt(former) => {
                let former = former.iter().map(|former| former.certificate.subject.as_str()).collect::<Vec<_>>();
                ("AuthorityAdopted", format!("trusted CAs were not recorded: {}", former.join(", ")))
            }
            Step::Retire(_) => ("AuthorityRetired", "a former CA is no longer needed".to_owned()),
            Step::Forget(_) => ("AuthorityForgotten", "a former CA has left the bundle".to_owned()),
            Step::RetireDone => ("RetirementDone", "no former CA is left".to_owned()),
            Step::Publish { certificates } => {
                ("BundlePublished", format!("published the trusted CAs ({})", certificates.len()))
            }
            Step::Issue { why } => ("CertificateIssued", format!("issued a certificate: {why}")),
        };
        tracing::info!(object = format!("{} {}", object.kind, object.name), reason, "{message}");
        self.record(object, Severity::Normal, reason, message);
    }

    /// Reports the certificate of a node.
    pub(super) fn chassis_issued(&self, grant: &Grant, certificate: &NodeCertificate, message: &str) {
        let Grant { node, chassis, .. } = grant;
        let (fingerprint, until) = (certificate.fingerprint.hex(), certificate.not_after.to_string());
        tracing::info!(node, chassis, fingerprint, until, "issued the certificate of a node");
        self.record(
            node_reference(node, &grant.node_uid),
            Severity::Normal,
            "ChassisCertificateIssued",
            message.to_owned(),
        );
    }

    /// Reports the revocation of a deleted Node's certificates.
    pub(super) fn chassis_revoked(&self, chassis: &str, claim: &Claim) {
        let Claim { node, node_uid, certificates } = claim;
        let fingerprints: Vec<String> = certificates.iter().map(|one| one.fingerprint.hex()).collect();
        let fingerprints = fingerprints.join(", ");
        tracing::info!(
            node,
            node_uid,
            chassis,
            fingerprints,
            "revoked the certificates of a deleted Node; if the node returns, its agent requests a new one"
        );
        let message = format!("the Node was deleted: revoked what chassis {chassis} had, SHA-256 {fingerprints}");
        self.record(node_reference(node, node_uid), Severity::Normal, "ChassisCertificatesRevoked", message);
    }

    /// Reports a denial: about the Node, or about the request if the requester has none.
    pub(super) fn chassis_denied(
        &self,
        request: &ChassisRequest,
        node: Option<(&String, &KnownNode)>,
        denial: &Denial,
    ) {
        let reason = denial.reason.text();
        tracing::warn!(
            request = request.name,
            user = request.username,
            node = request.node,
            reason,
            error = denial.message,
            "denied the certificate of a node"
        );
        let object = match node {
            Some((name, node)) => node_reference(name, &node.uid),
            None => ObjectReference {
                api_version: "certificates.k8s.io/v1".into(),
                kind: "CertificateSigningRequest".into(),
                namespace: String::new(),
                name: request.name.clone(),
                uid: request.uid.clone(),
            },
        };
        let message = format!("{reason}: {}", denial.message);
        self.record(object, Severity::Warning, "ChassisCertificateDenied", message);
    }

    fn record(&self, object: ObjectReference, severity: Severity, reason: &str, message: String) {
        self.recorder.record(Note { object, severity, reason: reason.to_owned(), message });
    }
}

fn node_reference(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        namespace: String::new(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    }
}
