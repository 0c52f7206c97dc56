//! TLS: who we are, whom we trust, and whether the server's name must fit. Files are read anew for each connection, so
//! certificates that were renewed are used without a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// The files of a TLS client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our certificate, with intermediates if there are any (PEM).
    pub certificate: PathBuf,
    /// Our private key (PEM).
    pub private_key: PathBuf,
    /// The authorities that we trust (PEM).
    pub authorities: PathBuf,
    /// Whether the server's certificate must carry the name or address that we connect to. Open vSwitch's own clients
    /// do not ask for it.
    pub verify_host_name: bool,
}

/// Why there is no TLS.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or holds nothing usable.
    #[error("cannot use {}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Key and certificate do not fit, or the like.
    #[error("the TLS files do not work together: {0}")]
    Config(String),
    /// A host name that cannot be one.
    #[error("{0:?} is no host name that TLS could ask for")]
    Name(String),
}

impl TlsFiles {
    /// Whether the files can be read, and work together.
    pub fn check(&self) -> Result<(), TlsError> {
        self.load().map(drop)
    }

    /// Reads the files and makes a configuration of them.
    pub(crate) fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let wrong = |path: &Path, problem: String| TlsError::File { path: path.to_owned(), problem };
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, TlsError> {
            let all = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| wrong(path, error.to_string()))?;
            if all.is_empty() { Err(wrong(path, "it holds no certificate".into())) } else { Ok(all) }
        };
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.authorities)? {
            roots.add(authority).map_err(|error| wrong(&self.authorities, error.to_string()))?;
        }
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.private_key)
            .map_err(|error| wrong(&self.private_key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = |error: &dyn std::fmt::Display| TlsError::Config(error.to_string());
        let strict = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| config(&error))?;
        let verifier: Arc<dyn ServerCertVerifier> =
            if self.verify_host_name { strict } else { Arc::new(AnyName { strict, provider: provider.clone() }) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| config(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(|error| config(&error))?;
        Ok(Arc::new(config))
    }
}

/// The name to ask for: a host name goes into SNI, an address does not.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

/// Accepts a certificate of a trusted authority under any name, as Open vSwitch does; all else is checked.
#[derive(Debug)]
struct AnyName {
    strict: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is checked last: whatever else is wrong was found before.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
