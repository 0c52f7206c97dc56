//! The server's certificate, read again when its files change, so that a renewed one is used without a restart.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why the certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("cannot use {}: {problem}; hint: [metrics] tls-cert and tls-key name PEM files", path.display())]
    File { path: PathBuf, problem: String },
    #[error("{} and {} cannot be used together: {problem}", certificate.display(), private_key.display())]
    Pair { certificate: PathBuf, private_key: PathBuf, problem: String },
}

/// Identifies a version of a file: kubelet replaces files by new ones, others write into them.
type Stamp = (u64, u64, i64, i64, u64);

/// The files of the certificate and its key.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    certificate: PathBuf,
    private_key: PathBuf,
    /// The last version that could be used.
    usable: Option<Arc<ServerConfig>>,
    /// The last version that was read, usable or not.
    seen: Option<[Stamp; 2]>,
}

impl CertificateFiles {
    pub(super) fn new(certificate: PathBuf, private_key: PathBuf) -> Self {
        Self { certificate, private_key, usable: None, seen: None }
    }

    /// The configuration with the newest usable certificate. A version that cannot be used is logged once, and the previous
    /// one stays in effect. Blocks on the metadata of two files, and on reading them if they changed.
    pub(super) fn current(&mut self) -> Result<Arc<ServerConfig>, CertificateError> {
        let stamps = stamp(&self.certificate).and_then(|certificate| Ok([certificate, stamp(&self.private_key)?]));
        if let (Some(usable), Ok(stamps)) = (&self.usable, &stamps)
            && self.seen.as_ref() == Some(stamps)
        {
            return Ok(usable.clone());
        }
        let before = std::mem::replace(&mut self.seen, stamps.ok());
        match (self.load(), &self.usable) {
            (Ok(config), previous) => {
                if previous.is_some() {
                    tracing::info!(certificate = %self.certificate.display(), "certificate of the metrics reloaded");
                }
                self.usable = Some(config.clone());
                Ok(config)
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

    fn load(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let unusable = |path: &Path, problem: String| CertificateError::File { path: path.to_owned(), problem };
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(&self.certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(unusable(&self.certificate, "it contains no certificate".into()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.private_key)
            .map_err(|error| unusable(&self.private_key, error.to_string()))?;
        let pair = |error: rustls::Error| CertificateError::Pair {
            certificate: self.certificate.clone(),
            private_key: self.private_key.clone(),
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
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let file = std::fs::metadata(path)?;
    Ok((file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}
