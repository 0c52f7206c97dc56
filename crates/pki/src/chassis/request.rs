//! What a node requests: the Kubernetes object, and the PKCS#10 request in it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

use crate::certificate::key_weakness;
use crate::chassis::judge::{Denial, DenialReason};

/// Longer requests are not parsed. One with an RSA key of 8192 bits has 3 KiB.
pub(crate) const LONGEST_REQUEST: usize = 16 << 10;
/// Identifier of Ed25519 keys.
const ED25519: &str = "1.3.101.112";
/// Identifiers of the curves P-256 and P-384.
const CURVES: [&str; 2] = ["1.2.840.10045.3.1.7", "1.3.132.0.34"];

/// A `CertificateSigningRequest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChassisRequest {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was created.
    pub created: Timestamp,
    /// The user who created it.
    pub username: String,
    /// The Node that its token names.
    pub node: Option<String>,
    /// The UID of that Node, if the token names it.
    pub node_uid: Option<String>,
    /// Requested usages.
    pub usages: Vec<String>,
    /// The PKCS#10 request in PEM.
    pub request: Vec<u8>,
}

/// What is in a PKCS#10 request whose signature is valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) common_name: String,
    pub(super) names: BTreeSet<String>,
    /// `SubjectPublicKeyInfo` in DER.
    pub(super) public_key: Vec<u8>,
}

/// Parses a request and checks what does not depend on the node: proof of possession, key, extensions.
pub(super) fn parse(pem: &[u8]) -> Result<Content, Denial> {
    let invalid = |why: String| {
        Denial::new(
            DenialReason::RequestInvalid,
            format!("the request cannot be read ({why}); create a PKCS#10 request in PEM"),
        )
    };
    if pem.len() > LONGEST_REQUEST {
        return Err(invalid(format!("it is longer than {LONGEST_REQUEST} bytes")));
    }
    let der = CertificateSigningRequestDer::from_pem_slice(pem).map_err(|error| invalid(error.to_string()))?;
    let (rest, parsed) = X509CertificationRequest::from_der(&der).map_err(|error| invalid(error.to_string()))?;
    if !rest.is_empty() {
        return Err(invalid("bytes follow it".into()));
    }
    let info = &parsed.certification_request_info;
    check_key(&info.subject_pki)?;
    parsed.verify_signature().map_err(|error| {
        let message = format!(
            "the request is not signed by the key that it names ({error}); sign it with that key, and with SHA-256 or SHA-384"
        );
        Denial::new(DenialReason::ProofInvalid, message)
    })?;
    let mut names = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for attribute in info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
            return Err(extension(&format!("attribute {}", attribute.oid.to_id_string())));
        };
        for one in &requested.extensions {
            let oid = one.oid.to_id_string();
            check_extension(one.parsed_extension(), &oid, &mut names)?;
            if !seen.insert(oid.clone()) {
                return Err(extension(&format!("extension {oid} twice")));
            }
        }
    }
    let common_name = common_name(&info.subject)?;
    Ok(Content { common_name, names, public_key: info.subject_pki.raw.to_vec() })
}

fn extension(what: &str) -> Denial {
    let message = format!(
        "the request asks for {what}; ask only for subjectAltName, for the key usage digitalSignature and for the extended key \
         usages clientAuth and serverAuth"
    );
    Denial::new(DenialReason::ExtensionNotAllowed, message)
}

fn check_key(key: &SubjectPublicKeyInfo<'_>) -> Result<(), Denial> {
    let weak = |why: String| {
        let message = format!("{why}; use P-256, P-384, Ed25519, or RSA with 2048 bits or more");
        Err(Denial::new(DenialReason::KeyWeak, message))
    };
    if let Some(weakness) = key_weakness(key) {
        return weak(weakness);
    }
    let curve = || key.algorithm.parameters.as_ref()?.as_oid().ok().map(|oid| oid.to_id_string());
    if let Err(error) = rcgen::SubjectPublicKeyInfo::from_der(key.raw) {
        return weak(format!("keys of this type cannot be certified ({error})"));
    }
    match key.parsed() {
        Ok(PublicKey::RSA(_)) => Ok(()),
        Ok(PublicKey::EC(_)) if curve().is_some_and(|curve| CURVES.contains(&curve.as_str())) => Ok(()),
        _ if key.algorithm.algorithm.to_id_string() == ED25519 => Ok(()),
        _ => weak(format!("keys of the type {} are not accepted", key.algorithm.algorithm.to_id_string())),
    }
}

fn check_extension(parsed: &ParsedExtension<'_>, oid: &str, names: &mut BTreeSet<String>) -> Result<(), Denial> {
    match parsed {
        ParsedExtension::SubjectAlternativeName(requested) => {
            for name in &requested.general_names {
                let GeneralName::DNSName(name) = name else {
                    let message = format!("the request has the name {name}; it may have DNS names only");
                    return Err(Denial::new(DenialReason::NameNotAllowed, message));
                };
                names.insert((*name).to_owned());
            }
            Ok(())
        }
        // The first bit is digitalSignature.
        ParsedExtension::KeyUsage(usage) if usage.flags & !1 == 0 => Ok(()),
        ParsedExtension::KeyUsage(_) => Err(extension("a key usage other than digitalSignature")),
        ParsedExtension::ExtendedKeyUsage(usage) => {
            let others = usage.any
                || usage.code_signing
                || usage.email_protection
                || usage.time_stamping
                || usage.ocsp_signing
                || !usage.other.is_empty();
            if others { Err(extension("another extended key usage")) } else { Ok(()) }
        }
        ParsedExtension::BasicConstraints(constraints) if !constraints.ca => Ok(()),
        ParsedExtension::BasicConstraints(_) => Err(extension("a CA's certificate (basicConstraints)")),
        _ => Err(extension(&format!("extension {oid}"))),
    }
}

fn common_name(subject: &X509Name<'_>) -> Result<String, Denial> {
    let denial = || {
        let message =
            format!("the subject is \"{subject}\"; it must be a common name, the node's chassis ID, and nothing else");
        Denial::new(DenialReason::ChassisMismatch, message)
    };
    let mut names = subject.iter_common_name();
    let (name, another) = (names.next(), names.next());
    if subject.iter_attributes().count() != 1 || another.is_some() {
        return Err(denial());
    }
    name.and_then(|name| name.as_str().ok()).map(str::to_owned).ok_or_else(denial)
}
