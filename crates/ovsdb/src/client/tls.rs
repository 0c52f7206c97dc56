//! TLS configuration. Files are read for each connection, so renewed certificates are used without a restart. Files that cannot
//! be used, such as half-written ones, do not replace those that could.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// The last usable content of files, and the problem with them that was logged last.
#[derive(Debug)]
struct Usable {
    config: Arc<ClientConfig>,
    problem: Option<String>,
}

/// Of all files that this process uses: its connections to one database share them.
static USABLE: LazyLock<Mutex<HashMap<TlsFiles, Usable>>> = LazyLock::new(Mutex::default);

/// Certificate files of a TLS client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TlsFiles {
    /// Client certificate chain (PEM).
    pub certificate: PathBuf,
    /// Private key of the certificate (PEM).
    pub private_key: PathBuf,
    /// Trusted certificate authorities (PEM).
    pub authorities: PathBuf,
    /// Whether the server's certificate must contain the host of the remote. Open vSwitch's own clients do not check
    /// it.
    pub verify_host_name: bool,
}

/// Why TLS cannot be set up.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or parsed.
    #[error("cannot use {}: {problem}", path.display())]
    File {
        /// As it was configured.
        path: PathBuf,
        /// Cause.
        problem: String,
    },
    /// For example, the key does not belong to the certificate.
    #[error("invalid combination of TLS files: {0}")]
    Config(String),
    /// The host of the remote is not a valid name.
    #[error("invalid TLS server name {0:?}")]
    Name(String),
}

impl TlsFiles {
    /// Checks that the files can be read and match. Blocks on file I/O.
    pub fn check(&self) -> Result<(), TlsError> {
        self.read().map(drop)
    }

    /// The configuration of the files; if they cannot be used now, the last one that could. Blocks on file I/O.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let read = self.read();
        let mut usable = USABLE.lock().unwrap_or_else(PoisonError::into_inner);
        match (read, usable.get_mut(self)) {
            (Ok(config), _) => {
                usable.insert(self.clone(), Usable { config: config.clone(), problem: None });
                Ok(config)
            }
            (Err(error), Some(former)) => {
                let problem = error.to_string();
                if former.problem.as_ref() != Some(&problem) {
                    tracing::warn!(
                        error = problem,
                        "changed TLS files of a database connection cannot be used; the previous ones stay in effect"
                    );
                    former.problem = Some(problem);
                }
                Ok(former.config.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Reads the files into a configuration.
    fn read(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let wrong = |path: &Path, problem: String| TlsError::File { path: path.to_owned(), problem };
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, TlsError> {
            let all = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| wrong(path, error.to_string()))?;
            if all.is_empty() { Err(wrong(path, "it contains no certificate".into())) } else { Ok(all) }
        };
        let roots = certificates(&self.authorities)?;
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.private_key)
            .map_err(|error| wrong(&self.private_key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = |error: &dyn std::fmt::Display| TlsError::Config(error.to_string());
        let strict = strict_verifier(roots, provider.clone()).map_err(|problem| wrong(&self.authorities, problem))?;
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

fn strict_verifier(
    authorities: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|error| error.to_string())
}

/// Verifies servers as Open vSwitch does: by one of these authorities, whatever the server's name is.
pub fn any_name_verifier(
    authorities: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let strict = strict_verifier(authorities, provider.clone()).map_err(TlsError::Config)?;
    Ok(Arc::new(AnyName { strict, provider }))
}

/// The name for SNI and verification; an address is not sent as SNI.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

/// Verifies everything but the host name, as Open vSwitch does.
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
            // The name is checked last, so everything else is valid.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            result => result,
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
