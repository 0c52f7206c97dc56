//! A node's side of its certificate: the key and the signing request that it sends, and whether an answer fits them.
//!
//! The key never leaves the node. What the signer puts into the certificate is checked all the same: an answer for another key
//! or name, or one that is not valid now, would cut the node off as soon as it replaces a certificate that works.

use std::fmt;

use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::CHASSIS_NAME;
use crate::certificate::{Certificate, CertificateError};
use crate::issue::{Authority, IssueError, PrivateKey};

/// `spec.usages` of a node's CertificateSigningRequest.
pub const CHASSIS_USAGES: [&str; 3] = ["digital signature", "client auth", "server auth"];
/// `metadata.generateName` of it.
pub const CHASSIS_REQUEST_PREFIX: &str = "ovn-chassis-";
/// Why an answer, or a certificate in a file, cannot be used by a chassis.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChassisError {
    /// The certificate cannot be read, or its key cannot, or they are halves of different pairs.
    #[error(transparent)]
    Pair(#[from] IssueError),
    /// It is another chassis' certificate.
    #[error("the certificate is for chassis {found:?}, not {expected:?}")]
    OtherChassis {
        /// Common name that the chassis needs.
        expected: String,
        /// Common name of the certificate; empty if it has none.
        found: String,
    },
    /// The clock is not within its validity.
    #[error(
        "the certificate is valid from {from} to {until}, and it is {now}; compare the clocks of this node and of the signer"
    )]
    NotValid {
        /// Start of its validity.
        from: Timestamp,
        /// End of its validity.
        until: Timestamp,
        /// The clock.
        now: Timestamp,
    },
}

impl From<CertificateError> for ChassisError {
    fn from(error: CertificateError) -> Self {
        Self::Pair(error.into())
    }
}

/// A new key, and the request to certify it. Its debug output does not show the key.
pub struct ChassisKey {
    chassis: String,
    key: KeyPair,
    pem: String,
}

impl fmt::Debug for ChassisKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChassisKey").field("chassis", &self.chassis).finish_non_exhaustive()
    }
}

impl ChassisKey {
    /// Creates a P-256 key and the request of a chassis (`system-id` of its Open vSwitch) on a node.
    pub fn create(chassis: &str, node: &str) -> Result<Self, IssueError> {
        let creation = |error: &dyn fmt::Display| IssueError::Create(error.to_string());
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, chassis);
        for name in [node, CHASSIS_NAME] {
            parameters.subject_alt_names.push(SanType::DnsName(name.try_into().map_err(|error| creation(&error))?));
        }
        let key = KeyPair::generate().map_err(|error| creation(&error))?;
        let request = parameters.serialize_request(&key).map_err(|error| creation(&error))?;
        let pem = request.pem().map_err(|error| creation(&error))?;
        Ok(Self { chassis: chassis.to_owned(), key, pem })
    }

    /// The chassis that it is for.
    pub fn chassis(&self) -> &str {
        &self.chassis
    }

    /// The request (PKCS#10) in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Checks the signer's answer: it must certify this key and this chassis, and be valid now.
    pub fn accept(&self, answer: &[u8], now: Timestamp) -> Result<ChassisCertificate, ChassisError> {
        let found = ChassisCertificate::from_pem(answer, self.key.serialize_pem().as_bytes())?;
        found.check(&self.chassis, now)?;
        Ok(found)
    }
}

/// A chassis' certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChassisCertificate {
    /// The certificate.
    pub certificate: Certificate,
    /// Its key.
    pub key: PrivateKey,
    /// Common name: `system-id` of the chassis. Empty if the certificate has none, or several.
    pub chassis: String,
    /// SHA-256 of the certificate, in lower-case hexadecimal digits.
    pub fingerprint: String,
    /// As it was given: certificates of intermediate CAs may follow the first one.
    pub chain: String,
}

impl ChassisCertificate {
    /// Parses a certificate and its key; they must belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, ChassisError> {
        let pair = Authority::from_pem(certificate, key)?;
        // The same block again, for the fields that `Certificate` does not have.
        let der = CertificateDer::from_pem_slice(certificate).map_err(|_| CertificateError::Empty)?;
        let (_, parsed) =
            X509Certificate::from_der(&der).map_err(|error| CertificateError::Malformed(error.to_string()))?;
        let mut names = parsed.subject().iter_common_name().map(|name| name.as_str().unwrap_or_default());
        let chassis = match (names.next(), names.next()) {
            (Some(name), None) => name.to_owned(),
            _ => String::new(),
        };
        let fingerprint = Sha256::digest(&der).iter().map(|byte| format!("{byte:02x}")).collect();
        let chain = String::from_utf8_lossy(certificate).into_owned();
        Ok(Self { certificate: pair.certificate, key: pair.key, chassis, fingerprint, chain })
    }

    /// Whether this chassis can use it now.
    pub fn check(&self, chassis: &str, now: Timestamp) -> Result<(), ChassisError> {
        if self.chassis != chassis {
            return Err(ChassisError::OtherChassis { expected: chassis.to_owned(), found: self.chassis.clone() });
        }
        let Certificate { not_before: from, not_after: until, .. } = self.certificate;
        if self.certificate.is_valid_at(now) { Ok(()) } else { Err(ChassisError::NotValid { from, until, now }) }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateSigningRequestParams, Issuer};

    use super::*;
    use crate::issue::tests::{authority, moment};

    /// What a signer answers; `edit` is what it does wrong.
    fn sign(request: &str, edit: impl FnOnce(&mut CertificateParams)) -> String {
        let ca = authority(0);
        let key = KeyPair::from_pem(ca.key.pem()).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&ca.certificate.pem(), key).unwrap();
        let mut request = CertificateSigningRequestParams::from_pem(request).unwrap();
        let date = |time: Timestamp| time::OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap();
        request.params.not_before = date(moment(0));
        request.params.not_after = date(moment(1000));
        edit(&mut request.params);
        request.signed_by(&issuer).unwrap().pem()
    }

    #[test]
    fn a_request_names_the_chassis_and_the_node_and_takes_the_answer_to_it() {
        let request = ChassisKey::create("0f3c-chassis", "n1.example.com").unwrap();
        let answer = sign(request.pem(), |_| ());
        let accepted = request.accept(answer.as_bytes(), moment(1)).unwrap();
        assert_eq!((accepted.chassis.as_str(), request.chassis()), ("0f3c-chassis", "0f3c-chassis"));
        assert_eq!(accepted.certificate.names, ["n1.example.com", CHASSIS_NAME]);
        assert_eq!(accepted.fingerprint.len(), 64);
        assert!(accepted.fingerprint.starts_with(&accepted.certificate.fingerprint.to_string()));
        assert_eq!(accepted.chain, answer);
        let again = ChassisCertificate::from_pem(answer.as_bytes(), accepted.key.pem().as_bytes()).unwrap();
        assert_eq!(again, accepted);
        assert!(!format!("{request:?} {accepted:?}").contains("BEGIN PRIVATE"), "keys are not logged");
        // A chain keeps its order.
        let chain = format!("{answer}{}", authority(0).certificate.pem());
        assert_eq!(request.accept(chain.as_bytes(), moment(1)).unwrap().fingerprint, accepted.fingerprint);
    }

    #[test]
    fn an_answer_that_does_not_fit_is_refused() {
        let request = ChassisKey::create("c1", "n1").unwrap();
        let refused = |answer: &str, now| request.accept(answer.as_bytes(), moment(now)).unwrap_err();
        let other_key = sign(ChassisKey::create("c1", "n1").unwrap().pem(), |_| ());
        assert_eq!(refused(&other_key, 1), ChassisError::Pair(IssueError::Mismatch));
        let renamed = sign(request.pem(), |parameters| {
            parameters.distinguished_name = DistinguishedName::new();
            parameters.distinguished_name.push(DnType::CommonName, "c2");
        });
        assert_eq!(refused(&renamed, 1).to_string(), r#"the certificate is for chassis "c2", not "c1""#);
        let unnamed = sign(request.pem(), |parameters| parameters.distinguished_name = DistinguishedName::new());
        assert!(matches!(refused(&unnamed, 1), ChassisError::OtherChassis { found, .. } if found.is_empty()));
        let good = sign(request.pem(), |_| ());
        for now in [-1, 1000] {
            assert!(matches!(refused(&good, now), ChassisError::NotValid { .. }), "{now}");
        }
        for garbage in ["", "hello", &good[..good.len() / 2]] {
            assert!(matches!(refused(garbage, 1), ChassisError::Pair(_)), "{garbage}");
        }
    }

    #[test]
    fn names_that_no_certificate_can_have_are_errors() {
        assert!(matches!(ChassisKey::create("c1", "nöde").unwrap_err(), IssueError::Create(_)));
    }
}
