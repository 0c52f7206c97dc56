//! What is wrong with the objects, and what happens next or has to be done.

use jiff::Timestamp;

use crate::certificate::Certificate;
use crate::domain::Object;
use crate::stored::{Bundle, Issued, Observed, Stored};

/// What is wrong with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The Secret of the CAs cannot be used. Nothing can be renewed until an administrator has decided.
    AuthorityUnusable,
    /// The CA is weak; it is replaced.
    AuthorityWeak,
    /// The CA has expired, or its validity has not begun; it is replaced.
    AuthorityNotValid,
    /// Parts of the bundle are not certificates; they are removed.
    BundleUnreadable,
    /// Secret `ovn-cert` cannot be used; it is replaced.
    CertificateUnusable,
    /// Programs do not accept the certificate; it is replaced.
    CertificateNotAccepted,
}

impl FindingKind {
    /// Reason of its Event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::AuthorityUnusable => "AuthorityUnusable",
            Self::AuthorityWeak => "AuthorityWeak",
            Self::AuthorityNotValid => "AuthorityNotValid",
            Self::BundleUnreadable => "BundleUnreadable",
            Self::CertificateUnusable => "CertificateUnusable",
            Self::CertificateNotAccepted => "CertificateNotAccepted",
        }
    }

    /// Whether it stays until an administrator acts.
    pub fn blocks(self) -> bool {
        self == Self::AuthorityUnusable
    }
}

/// A problem, for Events and logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// Where.
    pub object: Object,
    /// A sentence with the cause and what happens next, or the remedy.
    pub message: String,
}

pub(crate) fn findings(observed: &Observed, bundle: &Bundle, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (secret, config_map) = (observed.domain().secret(), observed.domain().config_map());
    let mut find = |kind, object, message| findings.push(Finding { kind, object, message });
    match &observed.authorities {
        Stored::Missing => {}
        Stored::Unusable(why) => find(
            FindingKind::AuthorityUnusable,
            secret,
            format!(
                "{why}. Certificates stay as they are, and none is renewed. Restore the Secret from a backup, or delete it \
                 (kubectl delete secret {}): then a new CA is created, and the old one stays trusted meanwhile",
                secret.name()
            ),
        ),
        Stored::Present(set) => {
            let certificate = &set.signing.certificate;
            if let Some(weakness) = &certificate.weakness {
                let message = format!("{weakness}; a new CA replaces it");
                find(FindingKind::AuthorityWeak, secret, message);
            }
            if !certificate.is_valid_at(now) {
                let (from, until) = (certificate.not_before, certificate.not_after);
                let message =
                    format!("the CA is valid from {from} to {until}, and it is {now}; a new CA replaces it at once");
                find(FindingKind::AuthorityNotValid, secret, message);
            }
        }
    }
    for why in &bundle.unreadable {
        let message = format!("{} has a part that is not a certificate ({why}); it is removed", crate::BUNDLE_KEY);
        find(FindingKind::BundleUnreadable, config_map, message);
    }
    let Issued::Published(leaf) = &observed.issued else { return findings };
    match leaf.as_ref() {
        Stored::Missing => {}
        Stored::Unusable(why) => {
            let message = format!("{why}; a new certificate replaces it");
            find(FindingKind::CertificateUnusable, Object::LeafSecret, message);
        }
        Stored::Present(leaf) if bundle.accepts(leaf, now) => {}
        Stored::Present(leaf) => {
            let message = format!("{}; a new certificate replaces it", not_accepted(&leaf.pair.certificate, now));
            find(FindingKind::CertificateNotAccepted, Object::LeafSecret, message);
        }
    }
    findings
}

pub(crate) fn not_accepted(certificate: &Certificate, now: Timestamp) -> String {
    if certificate.not_after <= now {
        format!("it expired at {}", certificate.not_after)
    } else if certificate.not_before > now {
        format!("its validity begins only at {}", certificate.not_before)
    } else {
        format!("the bundle has no CA that issued it ({})", certificate.issuer)
    }
}
