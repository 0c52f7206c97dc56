//! Which certificates of nodes are accepted: issued by an authority of the nodes' bundle, not revoked, and with one name.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Longest name of a chassis, in bytes.
const LONGEST_NAME: usize = 255;

/// SHA-256 of a certificate's DER.
pub(super) type Fingerprint = [u8; 32];

/// A certificate has no usable name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "its subject must have exactly one common name, the chassis' system-id, of at most {LONGEST_NAME} printable characters"
)]
pub(super) struct NameError;

/// The nodes' authorities and the revoked certificates.
#[derive(Debug)]
pub(super) struct Trust {
    verifier: Arc<dyn ClientCertVerifier>,
    revoked: HashSet<Fingerprint>,
}

impl Trust {
    /// Reads the bundle, and file `revoked`, which need not exist. Blocks on file I/O.
    pub(super) fn read(bundle: &Path, revoked: &Path) -> Result<Self, String> {
        let wrong = |path: &Path, problem: &dyn std::fmt::Display| format!("cannot use {}: {problem}", path.display());
        let text = match std::fs::read_to_string(revoked) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| wrong(revoked, &error))?,
        };
        let (list, problems) = parse_revoked(&text);
        for problem in problems {
            let file = revoked.display();
            tracing::warn!(%file, problem, "a line of the revoked certificates cannot be read; all others apply; remove it");
        }
        Self::new(certificates(bundle)?, list).map_err(|problem| wrong(bundle, &problem))
    }

    fn new(authorities: Vec<CertificateDer<'static>>, revoked: HashSet<Fingerprint>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|error| error.to_string())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { verifier, revoked })
    }

    /// Whether a client with this certificate is accepted.
    pub(super) fn admit(
        &self,
        certificate: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        self.verifier.verify_client_cert(certificate, more, now)?;
        if self.revoked.contains(&fingerprint(certificate)) {
            return Err(CertificateError::Revoked.into());
        }
        name(certificate).map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
        Ok(())
    }
}

impl ClientCertVerifier for Trust {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.admit(end_entity, intermediates, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// All certificates of a PEM file; at least one. Blocks on file I/O.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |problem: &dyn std::fmt::Display| format!("cannot use {}: {problem}", path.display());
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(&error))?;
    if all.is_empty() { Err(wrong(&"it contains no certificate")) } else { Ok(all) }
}

pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    Sha256::digest(certificate).into()
}

/// The name of the chassis: the only common name of the subject.
pub(super) fn name(certificate: &CertificateDer<'_>) -> Result<String, NameError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| NameError)?;
    let mut names = parsed.subject().iter_common_name();
    let name = names.next().and_then(|name| name.as_str().ok()).ok_or(NameError)?;
    let printable = !name.trim().is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control);
    if printable && names.next().is_none() { Ok(name.to_owned()) } else { Err(NameError) }
}

/// Fingerprints in hexadecimal, one a line; `#` starts a comment. Lines that cannot be read do not affect the others.
fn parse_revoked(text: &str) -> (HashSet<Fingerprint>, Vec<String>) {
    let (mut list, mut problems) = (HashSet::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        match parse_fingerprint(line) {
            Some(fingerprint) => _ = list.insert(fingerprint),
            None if line.is_empty() => {}
            None => problems
                .push(format!("line {number} is not a SHA-256 fingerprint of 64 hexadecimal digits: {line:.80?}")),
        }
    }
    (list, problems)
}

fn parse_fingerprint(text: &str) -> Option<Fingerprint> {
    let digits = text.as_bytes();
    let mut fingerprint = Fingerprint::default();
    if digits.len() != 2 * fingerprint.len() {
        return None;
    }
    let digit = |sign: u8| u8::try_from(char::from(sign).to_digit(16)?).ok();
    for (byte, pair) in fingerprint.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_listener::testing::Authority;

    fn accepted(trust: &Trust, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        trust.admit(certificate, &[], UnixTime::now())
    }

    #[test]
    fn certificates_of_the_nodes_authorities_are_accepted_and_others_are_not() {
        let (nodes, next, foreign) = (Authority::new("nodes"), Authority::new("next"), Authority::new("nodes"));
        let trust = Trust::new(vec![nodes.certificate(), next.certificate()], HashSet::new()).unwrap();
        let (good, _) = nodes.issue(&["n1"]);
        accepted(&trust, &good).unwrap();
        accepted(&trust, &next.issue(&["n1"]).0).unwrap();
        // The name of the authority proves nothing.
        accepted(&trust, &foreign.issue(&["n1"]).0).unwrap_err();
        let error = accepted(&trust, &nodes.issue_expired("n1")).unwrap_err();
        assert!(matches!(error, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })), "{error}");
        let revoked = Trust::new(vec![nodes.certificate()], HashSet::from([fingerprint(&good)])).unwrap();
        assert_eq!(accepted(&revoked, &good), Err(CertificateError::Revoked.into()));
        accepted(&revoked, &nodes.issue(&["n1"]).0).unwrap();
    }

    #[test]
    fn a_certificate_has_exactly_one_name() {
        let authority = Authority::new("nodes");
        let named = |names: &[&str]| name(&authority.issue(names).0);
        assert_eq!(named(&["8a5f-n1"]).as_deref(), Ok("8a5f-n1"));
        for names in [&[][..], &[""], &[" "], &["n1", "n2"], &["n1\n"], &["n\u{0}1"], &[&"n".repeat(256)]] {
            assert_eq!(named(names), Err(NameError), "{names:?}");
        }
        let trust = Trust::new(vec![authority.certificate()], HashSet::new()).unwrap();
        let error = accepted(&trust, &authority.issue(&["n1", "n2"]).0).unwrap_err();
        assert!(matches!(error, Error::InvalidCertificate(CertificateError::Other(_))), "{error}");
    }

    #[test]
    fn revoked_certificates_are_listed_by_fingerprint() {
        let (one, two) = ("ab".repeat(32), "01".repeat(32));
        let (list, problems) = parse_revoked(&format!("# node n1\n\n{one} # stolen\n  {two}\n"));
        assert_eq!((list, problems), (HashSet::from([[0xab; 32], [0x01; 32]]), Vec::new()));
        for bad in ["ab", &"zz".repeat(32), &"ab:".repeat(32), &format!("{one} {two}")] {
            let (list, problems) = parse_revoked(&format!("# list\n{bad}\n{two}\n"));
            assert_eq!(list, HashSet::from([[0x01; 32]]), "the other line applies");
            assert!(problems.len() == 1 && problems[0].starts_with("line 2"), "{problems:?}");
        }
    }
}
