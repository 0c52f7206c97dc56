//! What `ovnkube pki status` shows: every certificate with its role, and those of nodes.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::Serialize;

use crate::certificate::Certificate;
use crate::chassis::{Record, Revoked};
use crate::stored::Observed;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The CA that signs.
    SigningCa,
    /// The CA that will sign.
    NextCa,
    /// A CA that signed formerly and is still trusted.
    FormerCa,
    /// A CA that an administrator added to the bundle, or one whose Secret cannot be read.
    OtherCa,
    /// The certificate of the control plane.
    Certificate,
}

/// One certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// What it is for.
    pub role: Role,
    /// Subject, as text.
    pub subject: String,
    /// Issuer, as text.
    pub issuer: String,
    /// The first eight bytes of its SHA-256.
    pub fingerprint: String,
    /// DNS names and addresses.
    pub names: Vec<String>,
    /// Start of its validity.
    pub not_before: String,
    /// End of its validity.
    pub not_after: String,
    /// Seconds until then.
    pub seconds_left: i64,
    /// Whether it is in the bundle; for the certificate: whether the bundle accepts it.
    pub trusted: bool,
    /// When a former CA becomes unnecessary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retire_after: Option<String>,
    /// Why it is weak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weakness: Option<String>,
}

/// The certificate of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeEntry {
    /// Its chassis.
    pub chassis: String,
    /// Name of the Node.
    pub node: String,
    /// Its SHA-256, in hexadecimal digits.
    pub fingerprint: String,
    /// Issuer, as text.
    pub issuer: String,
    /// When it was issued.
    pub issued: String,
    /// End of its validity.
    pub not_after: String,
    /// Seconds until then.
    pub seconds_left: i64,
    /// Whether it is revoked.
    pub revoked: bool,
}

/// All recorded certificates of nodes that have not expired, by chassis. Fails if the time is out of range.
pub fn node_report(record: &Record, revoked: &Revoked, now: SystemTime) -> Result<Vec<NodeEntry>, jiff::Error> {
    let now = Timestamp::try_from(now)?;
    let of =
        record.holders().flat_map(|(chassis, claim)| claim.certificates.iter().map(move |one| (chassis, claim, one)));
    let valid = of.filter(|(_, _, one)| one.not_after > now);
    let entries = valid.map(|(chassis, claim, one)| NodeEntry {
        chassis: chassis.to_owned(),
        node: claim.node.clone(),
        fingerprint: one.fingerprint.hex(),
        issuer: one.issuer.clone(),
        issued: one.issued.to_string(),
        not_after: one.not_after.to_string(),
        seconds_left: one.not_after.as_second() - now.as_second(),
        revoked: revoked.contains(one.fingerprint),
    });
    Ok(entries.collect())
}

/// All certificates of a domain, CAs first. Fails if the time is out of range.
pub fn report(observed: &Observed, now: SystemTime) -> Result<Vec<Entry>, jiff::Error> {
    let now = Timestamp::try_from(now)?;
    let bundle = observed.bundle.present();
    let trusts = |certificate: &Certificate| bundle.is_some_and(|bundle| bundle.contains(certificate.fingerprint));
    let mut entries = Vec::new();
    let set = observed.authorities.present();
    if let Some(set) = set {
        entries.push(entry(Role::SigningCa, &set.signing.certificate, trusts(&set.signing.certificate), now));
        if let Some(next) = &set.next {
            entries.push(entry(Role::NextCa, &next.certificate, trusts(&next.certificate), now));
        }
        for former in &set.previous {
            let retire_after = Some(former.retire_after.to_string());
            entries.push(Entry {
                retire_after,
                ..entry(Role::FormerCa, &former.certificate, trusts(&former.certificate), now)
            });
        }
    }
    for certificate in bundle.iter().flat_map(|bundle| &bundle.certificates) {
        if !set.is_some_and(|set| set.contains(certificate.fingerprint)) {
            entries.push(entry(Role::OtherCa, certificate, true, now));
        }
    }
    if let Some(leaf) = observed.issued.leaf() {
        entries.push(entry(Role::Certificate, &leaf.pair.certificate, observed.leaf_is_accepted(now), now));
    }
    Ok(entries)
}

fn entry(role: Role, certificate: &Certificate, trusted: bool, now: Timestamp) -> Entry {
    Entry {
        role,
        subject: certificate.subject.clone(),
        issuer: certificate.issuer.clone(),
        fingerprint: certificate.fingerprint.to_string(),
        names: certificate.names.clone(),
        not_before: certificate.not_before.to_string(),
        not_after: certificate.not_after.to_string(),
        seconds_left: certificate.seconds_left(now),
        trusted,
        retire_after: None,
        weakness: certificate.weakness.clone(),
    }
}
