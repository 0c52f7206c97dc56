//! The server's certificate, read again when its files change, so that a renewed one is used without a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::peers::PeerVerifier;
use crate::Watched;

/// Why the certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("cannot use {}: {problem}; hint: [metrics] tls-cert and tls-key name PEM files", path.display())]
    File { path: PathBuf, problem: String },
    #[error("{} and {} cannot be used together: {problem}", certificate.display(), private_key.display())]
    Pair { certificate: PathBuf, private_key: PathBuf, problem: String },
    #[error("cannot use the authorities {}: {problem}; hint: it must be a PEM file with at least one certificate", path.display())]
    Authorities { path: PathBuf, problem: String },
}

/// What the files contain.
#[derive(Debug, Clone)]
pub(super) struct Material {
    pub(super) config: Arc<ServerConfig>,
    /// Which clients may read the status; none without authorities.
    pub(super) peers: Option<PeerVerifier>,
}

/// The files of the certificate and its key.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    certificate: PathBuf,
    private_key: PathBuf,
    /// Of clients that may read the status.
    authorities: Option<PathBuf>,
    material: Watched<Material>,
}

impl CertificateFiles {
    pub(super) fn new(certificate: PathBuf, private_key: PathBuf, authorities: Option<PathBuf>) -> Self {
        let files = [&certificate, &private_key].into_iter().chain(&authorities).cloned().collect();
        let material = Watched::new("certificate of the metrics for other machines", files);
        Self { certificate, private_key, authorities, material }
    }

    /// The configuration with the newest usable certificate; none if there was no usable one yet, which is logged. Blocks on the
    /// metadata of the files, and on reading them if they changed.
    pub(super) fn current(&mut self) -> Option<Material> {
        let (certificate, private_key, authorities) =
            (&self.certificate, &self.private_key, self.authorities.as_deref());
        self.material.refresh(|| load(certificate, private_key, authorities).map_err(|error| error.to_string()));
        self.material.usable().cloned()
    }
}

fn load(certificate: &Path, private_key: &Path, authorities: Option<&Path>) -> Result<Material, CertificateError> {
    let unusable = |path: &Path, problem: String| CertificateError::File { path: path.to_owned(), problem };
    let chain = certificates(certificate).map_err(|problem| unusable(certificate, problem))?;
    let key = PrivateKeyDer::from_pem_file(private_key).map_err(|error| unusable(private_key, error.to_string()))?;
    let pair = |error: rustls::Error| CertificateError::Pair {
        certificate: certificate.to_owned(),
        private_key: private_key.to_owned(),
        problem: error.to_string(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let peers = authorities.map(|path| {
        let verifier = certificates(path).and_then(|roots| PeerVerifier::new(roots, provider.clone()));
        verifier.map_err(|problem| CertificateError::Authorities { path: path.to_owned(), problem })
    });
    let peers = peers.transpose()?;
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(pair)?;
    let builder = match &peers {
        Some(peers) => builder.with_client_cert_verifier(peers.any_certificate()),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Material { config: Arc::new(config), peers })
}

/// At least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| error.to_string())?;
    if all.is_empty() { Err("it contains no certificate".into()) } else { Ok(all) }
}
