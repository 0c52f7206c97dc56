//! Certificates as the plan sees them: who issued them, until when they are valid, how strong they are.

use std::fmt;

use jiff::Timestamp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::domain::Domain;

/// Organisation of our CAs.
pub(crate) const CA_ORGANISATION: &str = "ovnkube";
/// Shorter RSA keys are weak.
const SHORTEST_RSA: usize = 2048;
/// Signatures with MD5 or SHA-1: RSA, RSA, ECDSA.
const OUTDATED: [&str; 3] = ["1.2.840.113549.1.1.4", "1.2.840.113549.1.1.5", "1.2.840.10045.4.1"];
/// Shorter keys on elliptic curves are weak.
const SHORTEST_EC: usize = 256;

/// SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a certificate in DER.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// All of it, in lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses 64 hexadecimal digits; `None` for everything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    /// The first eight bytes, in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// No certificate in the text.
    #[error("it has no PEM block CERTIFICATE")]
    Empty,
    /// Not PEM.
    #[error("invalid PEM: {0}")]
    Pem(String),
    /// Not an X.509 certificate.
    #[error("invalid certificate: {0}")]
    Malformed(String),
}

/// A parsed certificate: what rotations decide by, with its DER encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    /// Identifies it.
    pub fingerprint: Fingerprint,
    /// Subject, as text.
    pub subject: String,
    /// Issuer, as text.
    pub issuer: String,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
    /// Whether it may sign certificates.
    pub is_ca: bool,
    /// DNS names and addresses.
    pub names: Vec<String>,
    /// Why its key or signature is weak.
    pub weakness: Option<String>,
    public_key: Vec<u8>,
    ours: Option<Domain>,
}

impl Certificate {
    /// Parses a DER certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let malformed = |problem: String| CertificateError::Malformed(problem);
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed("bytes follow it".into()));
        }
        let time = |time: ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|_| malformed(format!("{time} is out of range")))
        };
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(name).collect();
        let text = |attribute: Option<&x509_parser::x509::AttributeTypeAndValue<'_>>| {
            attribute.and_then(|attribute| attribute.as_str().ok()).map(str::to_owned)
        };
        let subject = parsed.subject();
        let ours = text(subject.iter_organization().next()).filter(|name| name == CA_ORGANISATION);
        let ours = ours.and_then(|_| Domain::of_ca_name(&text(subject.iter_common_name().next())?));
        Ok(Self {
            der: der.to_vec(),
            fingerprint: Fingerprint::of(der),
            subject: subject.to_string(),
            issuer: parsed.issuer().to_string(),
            not_before: time(parsed.validity().not_before)?,
            not_after: time(parsed.validity().not_after)?,
            is_ca: parsed.is_ca(),
            names,
            weakness: weakness(&parsed),
            public_key: parsed.public_key().raw.to_vec(),
            ours,
        })
    }

    /// Parses the first certificate of a PEM text.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        Self::all_from_pem(text).into_iter().next().unwrap_or(Err(CertificateError::Empty))
    }

    /// Parses all certificates of a PEM text. Other kinds of blocks, and text around them, are ignored.
    pub fn all_from_pem(text: &[u8]) -> Vec<Result<Self, CertificateError>> {
        CertificateDer::pem_slice_iter(text)
            .map(|der| match der {
                Ok(der) => Self::from_der(&der),
                Err(error) => Err(CertificateError::Pem(error.to_string())),
            })
            .collect()
    }

    /// As PEM text.
    pub fn pem(&self) -> String {
        crate::issue::pem(&self.der)
    }

    /// Whether the clock is within its validity.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Seconds until it ends; negative afterwards.
    pub fn seconds_left(&self, now: Timestamp) -> i64 {
        self.not_after.as_second() - now.as_second()
    }

    /// Whether one of our signers created this CA for a domain, by its name.
    pub fn is_ca_of(&self, domain: Domain) -> bool {
        self.ours == Some(domain) && self.is_ca
    }

    /// Whether it certifies this public key (SubjectPublicKeyInfo).
    pub fn has_public_key(&self, public_key: &[u8]) -> bool {
        self.public_key == public_key
    }

    /// Whether programs that trust `authority` accept this certificate as a client's and as a server's.
    pub fn is_accepted_by(&self, authority: &Self, intermediates: &[Self], now: Timestamp) -> bool {
        // OpenSSL checks the dates of a trusted CA, webpki does not.
        if !authority.is_ca || !authority.is_valid_at(now) || !self.is_valid_at(now) {
            return false;
        }
        let certificate = CertificateDer::from(self.der.as_slice());
        let authority = CertificateDer::from(authority.der.as_slice());
        let intermediates: Vec<CertificateDer<'_>> =
            intermediates.iter().map(|certificate| CertificateDer::from(certificate.der.as_slice())).collect();
        let (Ok(end), Ok(anchor)) = (EndEntityCert::try_from(&certificate), anchor_from_trusted_cert(&authority))
        else {
            return false;
        };
        let Ok(seconds) = u64::try_from(now.as_second()) else { return false };
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let anchors = [anchor];
        [KeyUsage::client_auth(), KeyUsage::server_auth()].into_iter().all(|usage| {
            end.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, &intermediates, time, usage, None, None)
                .is_ok()
        })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(bytes) => Some(std::net::IpAddr::from(bytes).to_string()),
            Err(_) => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| std::net::IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }
}

fn weakness(parsed: &X509Certificate<'_>) -> Option<String> {
    if OUTDATED.contains(&parsed.signature_algorithm.algorithm.to_id_string().as_str()) {
        return Some("its signature uses MD5 or SHA-1".into());
    }
    key_weakness(parsed.public_key())
}

/// Why a public key is weak.
pub(crate) fn key_weakness(key: &SubjectPublicKeyInfo<'_>) -> Option<String> {
    match key.parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() < SHORTEST_RSA => {
            Some(format!("its RSA key has only {} bits", key.key_size()))
        }
        Ok(PublicKey::EC(key)) if key.key_size() < SHORTEST_EC => {
            Some(format!("its key on an elliptic curve has only {} bits", key.key_size()))
        }
        Ok(PublicKey::DSA(_)) => Some("it has a DSA key".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::tests::{authority, leaf, moment};

    #[test]
    fn a_certificate_says_who_and_until_when() {
        let ca = authority(0);
        let leaf = leaf(&ca, 0);
        let now = moment(60);
        assert!(ca.certificate.is_ca_of(Domain::ControlPlane) && !ca.certificate.is_ca_of(Domain::Nodes));
        assert!(!leaf.certificate.is_ca_of(Domain::ControlPlane));
        assert_eq!(leaf.certificate.subject, "CN=ovn");
        assert_eq!(leaf.certificate.issuer, ca.certificate.subject);
        assert_eq!(leaf.certificate.names, ["ovn"]);
        assert_eq!(leaf.certificate.weakness, None);
        assert!(leaf.certificate.is_accepted_by(&ca.certificate, &[], now));
        assert!(!leaf.certificate.is_accepted_by(&authority(0).certificate, &[], now), "another key");
        assert!(!leaf.certificate.is_accepted_by(&leaf.certificate, &[], now));
        assert!(!leaf.certificate.is_accepted_by(&ca.certificate, &[], leaf.certificate.not_after));
        let again = Certificate::from_pem(leaf.certificate.pem().as_bytes()).unwrap();
        assert_eq!(again, leaf.certificate);
    }

    #[test]
    fn a_fingerprint_is_read_as_it_was_written() {
        let fingerprint = authority(0).certificate.fingerprint;
        assert_eq!(Fingerprint::from_hex(&fingerprint.hex()), Some(fingerprint));
        assert!(fingerprint.hex().starts_with(&fingerprint.to_string()));
        for bad in ["", "00", &"g".repeat(64), &"+1".repeat(32), &"é".repeat(32)] {
            assert_eq!(Fingerprint::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn texts_that_are_no_certificate_are_errors() {
        let pem = authority(0).certificate.pem();
        assert_eq!(Certificate::from_pem(b""), Err(CertificateError::Empty));
        assert_eq!(Certificate::from_pem(b"hello"), Err(CertificateError::Empty));
        let half = &pem[..pem.len() / 2];
        assert!(matches!(Certificate::from_pem(half.as_bytes()), Err(CertificateError::Pem(_))), "half-written");
        let other = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        assert!(matches!(Certificate::from_pem(other.as_bytes()), Err(CertificateError::Malformed(_))));
        let both = format!("# a comment\n{pem}\nother text\n{other}{pem}");
        let all: Vec<bool> = Certificate::all_from_pem(both.as_bytes()).iter().map(Result::is_ok).collect();
        assert_eq!(all, [true, false, true]);
    }
}
