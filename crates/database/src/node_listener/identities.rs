//! The certificates with which this process stands for nodes at its own ovsdb-server: each has the name of one node, and an
//! authority issues them that exists only in the memory of this process.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// Most names whose certificates are kept.
const MOST: usize = 1024;
/// Subject of the authority.
const AUTHORITY: &str = "ovnkube node listener";

/// A certificate cannot be issued.
#[derive(Debug, thiserror::Error)]
pub(super) enum IdentityError {
    #[error("cannot issue a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("cannot use the issued certificate: {0}")]
    Use(#[from] rustls::Error),
}

/// The authority, and the configurations of connections in the name of nodes.
pub(super) struct Identities {
    issuer: Issuer<'static, KeyPair>,
    /// PEM of the authority's certificate.
    authority: String,
    /// One key for all: none leaves this process.
    key: KeyPair,
    configs: HashMap<String, Arc<ClientConfig>>,
    /// The names in `configs`, the oldest first.
    order: VecDeque<String>,
}

impl Identities {
    pub(super) fn new() -> Result<Self, IdentityError> {
        // The validity of rcgen's default includes every date: a jump of the clock must not end the sessions of all nodes.
        let mut parameters = parameters(AUTHORITY);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let authority = parameters.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(parameters, key),
            authority,
            key: KeyPair::generate()?,
            configs: HashMap::new(),
            order: VecDeque::new(),
        })
    }

    /// The authority that ovsdb-server must trust.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Forgets the configurations: servers are verified in another way from now on.
    pub(super) fn clear(&mut self) {
        self.configs.clear();
        self.order.clear();
    }

    /// The configuration of a connection in the name of a node.
    pub(super) fn client(
        &mut self,
        name: &str,
        verifier: &Arc<dyn ServerCertVerifier>,
    ) -> Result<Arc<ClientConfig>, IdentityError> {
        if let Some(config) = self.configs.get(name) {
            return Ok(config.clone());
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_auth_cert(
                vec![self.issue(name)?],
                PrivatePkcs8KeyDer::from(self.key.serialize_der()).into(),
            )?;
        config.resumption = Resumption::disabled();
        let config = Arc::new(config);
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.configs.remove(&oldest);
        }
        self.order.push_back(name.to_owned());
        self.configs.insert(name.to_owned(), config.clone());
        Ok(config)
    }

    fn issue(&self, name: &str) -> Result<CertificateDer<'static>, rcgen::Error> {
        let mut parameters = parameters(name);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(parameters.signed_by(&self.key, &self.issuer)?.into())
    }
}

fn parameters(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_listener::testing::Authority;
    use crate::node_listener::trust;

    #[test]
    fn certificates_have_the_nodes_name_and_are_kept_with_a_bound() {
        let verifier = ovsdb::client::any_name_verifier(
            vec![Authority::new("ca").certificate()],
            Arc::new(rustls::crypto::ring::default_provider()),
        )
        .unwrap();
        let mut identities = Identities::new().unwrap();
        assert_eq!(trust::name(&identities.issue("n1").unwrap()).as_deref(), Ok("n1"));
        let first = identities.client("n1", &verifier).unwrap();
        assert!(Arc::ptr_eq(&first, &identities.client("n1", &verifier).unwrap()));
        for number in 0..MOST {
            identities.client(&format!("other-{number}"), &verifier).unwrap();
        }
        assert_eq!((identities.configs.len(), identities.order.len()), (MOST, MOST));
        assert!(!Arc::ptr_eq(&first, &identities.client("n1", &verifier).unwrap()), "the oldest was forgotten");
    }
}
