//! Certificates of the tests.

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// An authority with a new key.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    own: rcgen::Certificate,
}

fn parameters(names: &[&str]) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    for name in names {
        parameters.distinguished_name.push(DnType::CommonName, *name);
    }
    parameters
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut parameters = parameters(&[name]);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = parameters.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(parameters, key), own }
    }

    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.own.der().clone()
    }

    pub(super) fn pem(&self) -> String {
        self.own.pem()
    }

    /// A certificate with these common names, and its key.
    pub(super) fn issue(&self, names: &[&str]) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let (certificate, key) = self.sign(names);
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    /// As PEM.
    pub(super) fn issue_pem(&self, name: &str) -> (String, String) {
        let (certificate, key) = self.sign(&[name]);
        (certificate.pem(), key.serialize_pem())
    }

    fn sign(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = parameters(names.get(..1).unwrap_or(names));
        if let [one, two] = names {
            // `DistinguishedName` holds one value of each type; a second one needs its own object identifier.
            parameters.distinguished_name = DistinguishedName::new();
            parameters.distinguished_name.push(DnType::CommonName, *one);
            parameters.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), *two);
        }
        (parameters.signed_by(&key, &self.issuer).unwrap(), key)
    }

    pub(super) fn issue_expired(&self, name: &str) -> CertificateDer<'static> {
        let mut parameters = parameters(&[name]);
        parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
        parameters.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()
    }
}
