//! Creates CAs and certificates: P-256, signed with SHA-256.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo,
};
use sha2::{Digest, Sha256};

use crate::certificate::{CA_ORGANISATION, Certificate, CertificateError};
use crate::domain::Domain;
use crate::policy::Policy;

/// How far in the past the validity of a CA starts: the clocks of other machines may be behind.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);
/// Common name of the certificate of the control plane.
const LEAF_NAME: &str = "ovn";

/// A private key in PEM. Its debug output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(String);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

impl PrivateKey {
    /// The PEM text.
    pub fn pem(&self) -> &str {
        &self.0
    }
}

/// A CA or a certificate with its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Published or served; also names the issuer.
    pub certificate: Certificate,
    /// Belongs to the public key of `certificate`; never logged.
    pub key: PrivateKey,
}

/// Why a key cannot be used or a certificate cannot be issued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// An unusable certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// An unusable private key.
    #[error("invalid or unsupported private key ({0}); P-256, P-384, Ed25519 and RSA keys in PKCS#8 can be used")]
    Key(String),
    /// Halves of different pairs.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    /// Not a CA.
    #[error("the certificate is not a CA's (basicConstraints)")]
    NotAnAuthority,
    /// The time is out of range, a name is invalid, or no random numbers are available.
    #[error("cannot create a certificate: {0}")]
    Create(String),
}

impl Authority {
    /// Parses a certificate and its key; they must belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, IssueError> {
        let certificate = Certificate::from_pem(certificate)?;
        let text = std::str::from_utf8(key).map_err(|_| IssueError::Key("not text".into()))?;
        let pair = KeyPair::from_pem(text).map_err(|error| IssueError::Key(error.to_string()))?;
        if !certificate.has_public_key(&pair.subject_public_key_info()) {
            return Err(IssueError::Mismatch);
        }
        Ok(Self { certificate, key: PrivateKey(text.to_owned()) })
    }
}

/// Creates a CA of the control plane.
pub fn create_authority(policy: &Policy, now: Timestamp) -> Result<Authority, IssueError> {
    create_authority_of(Domain::ControlPlane, policy, now)
}

/// Creates a CA. No other one has its name, not even one of another cluster that was created at the same moment: a program that
/// trusts both would have to try both keys, and people could not tell them apart.
pub fn create_authority_of(domain: Domain, policy: &Policy, now: Timestamp) -> Result<Authority, IssueError> {
    let pair = KeyPair::generate().map_err(creation)?;
    let mut parameters = parameters(&format!("{}{}-{}", domain.ca_name(), now.as_second(), key_id(&pair)));
    parameters.distinguished_name.push(DnType::OrganizationName, CA_ORGANISATION);
    // It signs certificates of programs, never other CAs.
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    parameters.not_before = date(now.checked_sub(BACKDATED).map_err(creation)?)?;
    parameters.not_after = date(later(now, policy.ca_lifetime)?)?;
    let certificate = parameters.self_signed(&pair).map_err(creation)?;
    Ok(Authority { certificate: Certificate::from_der(certificate.der())?, key: PrivateKey(pair.serialize_pem()) })
}

/// Issues the certificate of the control plane, for clients and servers. Its validity starts with that of its CA, so that it
/// can be used on machines whose clock is behind, and ends with it at the latest.
pub fn issue_leaf(authority: &Authority, policy: &Policy, now: Timestamp) -> Result<Authority, IssueError> {
    let issuer = issuer(authority)?;
    let mut parameters = leaf_parameters(LEAF_NAME, authority, policy, now)?;
    for name in &policy.names {
        let name = match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into().map_err(creation)?),
        };
        parameters.subject_alt_names.push(name);
    }
    let pair = KeyPair::generate().map_err(creation)?;
    let certificate = parameters.signed_by(&pair, &issuer).map_err(creation)?;
    Ok(Authority { certificate: Certificate::from_der(certificate.der())?, key: PrivateKey(pair.serialize_pem()) })
}

/// Issues the certificate of a node for a public key (SubjectPublicKeyInfo in DER) that a request proved to have. `request`
/// identifies the request: certificates of different requests have different serial numbers, also for the same key.
pub fn issue_chassis(
    authority: &Authority,
    policy: &Policy,
    chassis: &str,
    names: &BTreeSet<String>,
    public_key: &[u8],
    request: &str,
    now: Timestamp,
) -> Result<Certificate, IssueError> {
    let issuer = issuer(authority)?;
    let mut parameters = leaf_parameters(chassis, authority, policy, now)?;
    for name in names {
        parameters.subject_alt_names.push(SanType::DnsName(name.as_str().try_into().map_err(creation)?));
    }
    let mut serial = Sha256::new().chain_update(public_key).chain_update(request).finalize();
    // Positive and not zero, as RFC 5280 demands.
    serial[0] = serial[0] & 0x7f | 0x40;
    parameters.serial_number = Some(SerialNumber::from_slice(&serial[..16]));
    let key = SubjectPublicKeyInfo::from_der(public_key).map_err(creation)?;
    let certificate = parameters.signed_by(&key, &issuer).map_err(creation)?;
    Ok(Certificate::from_der(certificate.der())?)
}

fn issuer(authority: &Authority) -> Result<Issuer<'static, KeyPair>, IssueError> {
    if !authority.certificate.is_ca {
        return Err(IssueError::NotAnAuthority);
    }
    let key = KeyPair::from_pem(authority.key.pem()).map_err(|error| IssueError::Key(error.to_string()))?;
    Issuer::from_ca_cert_pem(&authority.certificate.pem(), key).map_err(creation)
}

/// What all certificates of programs have in common.
fn leaf_parameters(
    common_name: &str,
    authority: &Authority,
    policy: &Policy,
    now: Timestamp,
) -> Result<CertificateParams, IssueError> {
    let mut parameters = parameters(common_name);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    parameters.not_before = date(authority.certificate.not_before)?;
    parameters.not_after = date(later(now, policy.leaf_lifetime)?.min(authority.certificate.not_after))?;
    Ok(parameters)
}

/// The first four bytes of the SHA-256 of a public key, in hexadecimal digits.
fn key_id(pair: &KeyPair) -> String {
    let hash = Sha256::digest(pair.subject_public_key_info());
    hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// PEM text of a certificate.
pub(crate) fn pem(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

fn parameters(common_name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, common_name);
    parameters
}

pub(crate) fn later(now: Timestamp, by: Duration) -> Result<Timestamp, IssueError> {
    let by = SignedDuration::try_from(by).map_err(creation)?;
    now.checked_add(by).map_err(creation)
}

fn date(time: Timestamp) -> Result<time::OffsetDateTime, IssueError> {
    time::OffsetDateTime::from_unix_timestamp(time.as_second()).map_err(creation)
}

fn creation(error: impl fmt::Display) -> IssueError {
    IssueError::Create(error.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Seconds after some moment.
    pub(crate) fn moment(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    pub(crate) fn authority(created: i64) -> Authority {
        create_authority(&Policy::default(), moment(created)).unwrap()
    }

    pub(crate) fn leaf(authority: &Authority, issued: i64) -> Authority {
        issue_leaf(authority, &Policy::default(), moment(issued)).unwrap()
    }

    #[test]
    fn lifetimes_are_those_of_the_policy() {
        let policy = Policy::default();
        let ca = authority(0);
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap();
        assert_eq!(ca.certificate.seconds_left(moment(0)), seconds(policy.ca_lifetime));
        assert!(ca.certificate.is_valid_at(moment(-3599)), "clocks may be behind");
        let issued = seconds(policy.ca_renew_after);
        let certificate = leaf(&ca, issued).certificate;
        assert_eq!(certificate.seconds_left(moment(issued)), seconds(policy.leaf_lifetime));
        assert_eq!(certificate.not_before, ca.certificate.not_before);
        let last = leaf(&ca, seconds(policy.ca_lifetime) - 60).certificate;
        assert_eq!(last.not_after, ca.certificate.not_after);
    }

    #[test]
    fn cas_of_the_same_moment_have_different_names() {
        let (one, other) = (authority(0).certificate, authority(0).certificate);
        assert_ne!(one.subject, other.subject);
        assert!(one.subject.contains("ovn-ca@1800000000-"), "{}", one.subject);
        assert!(one.is_ca_of(Domain::ControlPlane) && other.is_ca_of(Domain::ControlPlane));
        let nodes = create_authority_of(Domain::Nodes, &Policy::default(), moment(0)).unwrap().certificate;
        assert!(nodes.is_ca_of(Domain::Nodes) && !nodes.is_ca_of(Domain::ControlPlane), "{}", nodes.subject);
        // Those of earlier versions had no key in their name, and are still ours.
        let mut former = parameters("ovn-ca@1800000000");
        former.distinguished_name.push(DnType::OrganizationName, CA_ORGANISATION);
        former.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let former = former.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert!(Certificate::from_der(former.der()).unwrap().is_ca_of(Domain::ControlPlane));
    }

    #[test]
    fn a_key_belongs_to_its_certificate() {
        let (one, other) = (authority(0), authority(0));
        let pem = |authority: &Authority| authority.certificate.pem();
        let parse = |certificate: &str, key: &str| Authority::from_pem(certificate.as_bytes(), key.as_bytes());
        assert_eq!(parse(&pem(&one), one.key.pem()), Ok(one.clone()));
        assert_eq!(parse(&pem(&one), other.key.pem()), Err(IssueError::Mismatch));
        assert!(matches!(parse(&pem(&one), "garbage"), Err(IssueError::Key(_))));
        assert!(matches!(parse(&pem(&one), &one.key.pem()[..40]), Err(IssueError::Key(_))));
        let leaf = leaf(&one, 0);
        assert_eq!(issue_leaf(&leaf, &Policy::default(), moment(0)), Err(IssueError::NotAnAuthority));
        assert_eq!(format!("{:?}", one.key), "PrivateKey(…)");
    }
}
