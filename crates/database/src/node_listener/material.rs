//! What the listener is made of: the files of both sides, the authority in memory, and the file for ovsdb-server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ovsdb::client::{TlsFiles, any_name_verifier};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use telemetry::Watched;

use super::identities::{Identities, IdentityError};
use super::trust::{Trust, certificates};

/// The control plane's authorities: as text for ovsdb-server, and to verify it.
struct Authorities {
    text: String,
    verifier: Arc<dyn ServerCertVerifier>,
}

/// What a refresh changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changed {
    /// Nodes that were accepted may not be accepted any more.
    pub(super) trust: bool,
}

pub(super) struct Material {
    tls: TlsFiles,
    nodes: PathBuf,
    combined: PathBuf,
    identity: Watched<Arc<CertifiedKey>>,
    authorities: Watched<Authorities>,
    trust: Watched<Arc<Trust>>,
    identities: Identities,
    /// None until there is an identity and a bundle.
    server: Option<Arc<ServerConfig>>,
    write_problem: Option<String>,
}

impl Material {
    /// Reads all files, and writes that for ovsdb-server. The nodes' bundle need not be usable yet.
    pub(super) fn open(tls: TlsFiles, nodes: PathBuf, combined: PathBuf) -> io::Result<Self> {
        let identities = Identities::new().map_err(|error| io::Error::other(error.to_string()))?;
        let revoked = nodes.with_file_name("revoked");
        let mut this = Self {
            identity: Watched::new(
                "certificate of the listener for nodes",
                vec![tls.certificate.clone(), tls.private_key.clone()],
            ),
            authorities: Watched::new("bundle of the control plane's CA", vec![tls.authorities.clone()]),
            trust: Watched::new("bundle of the nodes' CA", vec![nodes.clone(), revoked]),
            tls,
            nodes,
            combined,
            identities,
            server: None,
            write_problem: None,
        };
        this.refresh();
        if this.authorities.usable().is_none() {
            return Err(io::Error::other(this.authorities.problem().unwrap_or_default().to_owned()));
        }
        match &this.write_problem {
            Some(problem) => Err(io::Error::other(problem.clone())),
            None => Ok(this),
        }
    }

    /// Reads what has changed. Blocks on file I/O.
    pub(super) fn refresh(&mut self) -> Changed {
        let tls = self.tls.clone();
        let identity = self.identity.refresh(|| read_identity(&tls));
        if self.authorities.refresh(|| read_authorities(&tls.authorities)) {
            self.identities.clear();
            self.write_combined();
        } else if self.write_problem.is_some() || !self.combined.exists() {
            self.write_combined();
        }
        let (nodes, revoked) = (self.nodes.clone(), self.nodes.with_file_name("revoked"));
        let trust = self.trust.refresh(|| Trust::read(&nodes, &revoked).map(Arc::new));
        if (identity || trust)
            && let (Some(identity), Some(trust)) = (self.identity.usable(), self.trust.usable())
        {
            match server_config(identity.clone(), trust.clone()) {
                Ok(config) => self.server = Some(config),
                Err(error) => {
                    tracing::error!(%error, "cannot configure TLS for nodes; the previous configuration stays in effect");
                }
            }
        }
        Changed { trust }
    }

    /// The configuration for nodes, or why there is none.
    pub(super) fn server(&self) -> Result<&Arc<ServerConfig>, String> {
        let problem = || self.trust.problem().or(self.identity.problem()).unwrap_or("not read yet").to_owned();
        self.server.as_ref().ok_or_else(problem)
    }

    /// Who is accepted; none until a bundle was usable.
    pub(super) fn trust(&self) -> Option<&Arc<Trust>> {
        self.trust.usable()
    }

    /// The configuration of a connection to ovsdb-server in the name of a node.
    pub(super) fn client(&mut self, name: &str) -> Result<Arc<ClientConfig>, IdentityError> {
        match self.authorities.usable() {
            Some(authorities) => self.identities.client(name, &authorities.verifier),
            None => Err(rustls::Error::General("no CA of the server is known".into()).into()),
        }
    }

    fn write_combined(&mut self) {
        let Some(authorities) = self.authorities.usable() else { return };
        let text = format!("{}\n{}", authorities.text.trim_end(), self.identities.authority());
        let written = replace(&self.combined, &text);
        let problem = written.err().map(|error| format!("cannot write {}: {error}", self.combined.display()));
        if let Some(error) = &problem
            && self.write_problem.as_ref() != Some(error)
        {
            tracing::error!(error, "ovsdb-server does not get its new CA bundle; retrying");
        }
        self.write_problem = problem;
    }
}

/// Replaces a file at once: its reader must never see a part of it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    std::fs::write(&draft, text)?;
    std::fs::rename(draft, path)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read_identity(tls: &TlsFiles) -> Result<Arc<CertifiedKey>, String> {
    let chain = certificates(&tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.private_key)
        .map_err(|error| format!("cannot use {}: {error}", tls.private_key.display()))?;
    let pair = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
        format!("{} and {} cannot be used together: {error}", tls.certificate.display(), tls.private_key.display())
    })?;
    Ok(Arc::new(pair))
}

fn read_authorities(path: &Path) -> Result<Authorities, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("cannot use {}: {error}", path.display());
    let verifier = any_name_verifier(certificates(path)?, provider()).map_err(|error| wrong(&error))?;
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    Ok(Authorities { text, verifier })
}

fn server_config(identity: Arc<CertifiedKey>, trust: Arc<Trust>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(trust)
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(identity)));
    // A resumed session is not checked again: a certificate that was revoked meanwhile would be accepted.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
