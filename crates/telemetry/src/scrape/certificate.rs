//! The server's certificate, read again when its files change, so that a renewed one is used without a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Watched;

/// Why the certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("cannot use {}: {problem}; hint: [metrics] tls-cert and tls-key name PEM files", path.display())]
    File { path: PathBuf, problem: String },
    #[error("{} and {} cannot be used together: {problem}", certificate.display(), private_key.display())]
    Pair { certificate: PathBuf, private_key: PathBuf, problem: String },
}

/// The files of the certificate and its key.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    certificate: PathBuf,
    private_key: PathBuf,
    config: Watched<Arc<ServerConfig>>,
}

impl CertificateFiles {
    pub(super) fn new(certificate: PathBuf, private_key: PathBuf) -> Self {
        let files = vec![certificate.clone(), private_key.clone()];
        let config = Watched::new("certificate of the metrics for other machines", files);
        Self { certificate, private_key, config }
    }

    /// The configuration with the newest usable certificate; none if there was no usable one yet, which is logged. Blocks on the
    /// metadata of two files, and on reading them if they changed.
    pub(super) fn current(&mut self) -> Option<Arc<ServerConfig>> {
        let (certificate, private_key) = (&self.certificate, &self.private_key);
        self.config.refresh(|| load(certificate, private_key).map_err(|error| error.to_string()));
        self.config.usable().cloned()
    }
}

fn load(certificate: &Path, private_key: &Path) -> Result<Arc<ServerConfig>, CertificateError> {
    let unusable = |path: &Path, problem: String| CertificateError::File { path: path.to_owned(), problem };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(unusable(certificate, "it contains no certificate".into()));
    }
    let key = PrivateKeyDer::from_pem_file(private_key).map_err(|error| unusable(private_key, error.to_string()))?;
    let pair = |error: rustls::Error| CertificateError::Pair {
        certificate: certificate.to_owned(),
        private_key: private_key.to_owned(),
        problem: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
