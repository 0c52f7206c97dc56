//! The server's certificate, read again when its files change, so that a renewed one is used without a restart.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::peers::PeerVerifier;

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

/// Identifies a version of a file: kubelet replaces files by new ones, others write into them.
type Stamp = (u64, u64, i64, i64, u64);

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
    /// The last version that could be used.
    usable: Option<Material>,
    /// The last version that was read, usable or not.
    seen: Option<Vec<Stamp>>,
}

impl CertificateFiles {
    pub(super) fn new(certificate: PathBuf, private_key: PathBuf, authorities: Option<PathBuf>) -> Self {
        Self { certificate, private_key, authorities, usable: None, seen: None }
    }

    /// The configuration with the newest usable certificate. A version that cannot be used is logged once, and the previous
    /// one stays in effect. Blocks on the metadata of the files, and on reading them if they changed.
    pub(super) fn current(&mut self) -> Result<Material, CertificateError> {
        let files = [&self.certificate, &self.private_key].into_iter().chain(&self.authorities);
        let stamps = files.map(|path| stamp(path)).collect::<io::Result<Vec<_>>>();
        if let (Some(usable), Ok(stamps)) = (&self.usable, &stamps)
            && self.seen.as_ref() == Some(stamps)
        {
            return Ok(usable.clone());
        }
        let before = std::mem::replace(&mut self.seen, stamps.ok());
        match (self.load(), &self.usable) {
            (Ok(material), previous) => {
                if previous.is_some() {
                    tracing::info!(certificate = %self.certificate.display(), "certificate of the metrics reloaded");
                }
                self.usable = Some(material.clone());
                Ok(material)
            }
            (Err(error), Some(usable)) => {
                if before != self.seen {
                    tracing::warn!(%error, "changed certificate of the metrics cannot be used; the previous one stays in effect");
                }
                Ok(usable.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn load(&self) -> Result<Material, CertificateError> {
        let unusable = |path: &Path, problem: String| CertificateError::File { path: path.to_owned(), problem };
        let chain = certificates(&self.certificate).map_err(|problem| unusable(&self.certificate, problem))?;
        let key = PrivateKeyDer::from_pem_file(&self.private_key)
            .map_err(|error| unusable(&self.private_key, error.to_string()))?;
        let pair = |error: rustls::Error| CertificateError::Pair {
            certificate: self.certificate.clone(),
            private_key: self.private_key.clone(),
            problem: error.to_string(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let peers = self.authorities.as_ref().map(|path| {
            let verifier = certificates(path).and_then(|roots| PeerVerifier::new(roots, provider.clone()));
            verifier.map_err(|problem| CertificateError::Authorities { path: path.clone(), problem })
        });
        let peers = peers.transpose()?;
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(pair)?;
        let builder = match &peers {
            Some(peers) => builder.with_client_cert_verifier(peers.any_certificate()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Material { config: Arc::new(config), peers })
    }
}

/// At least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| error.to_string())?;
    if all.is_empty() { Err("it contains no certificate".into()) } else { Ok(all) }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let file = std::fs::metadata(path)?;
    Ok((file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}
