//! Client certificates of the TLS listener: one is asked for and not needed, because scrapers authenticate by token.
//!
//! A scraper may present a certificate of another CA, and must not be refused for it. So the handshake only proves that the
//! client has the private key; whether the certificate is one of the trusted authorities is asked afterwards.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

/// Tells certificates of some authorities from others; clones share it.
#[derive(Debug, Clone)]
pub(super) struct PeerVerifier(Arc<dyn ClientCertVerifier>);

impl PeerVerifier {
    pub(super) fn new(
        authorities: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|error| error.to_string())?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map(Self).map_err(|error| error.to_string())
    }

    /// For the handshake.
    pub(super) fn any_certificate(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(AnyCertificate(self.0.clone()))
    }

    /// Whether a client that completed the handshake has a certificate of these authorities.
    pub(super) fn trusts(&self, chain: Option<&[CertificateDer<'_>]>) -> bool {
        let Some((own, intermediates)) = chain.and_then(<[_]>::split_first) else { return false };
        self.0.verify_client_cert(own, intermediates, UnixTime::now()).is_ok()
    }
}

#[derive(Debug)]
struct AnyCertificate(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
