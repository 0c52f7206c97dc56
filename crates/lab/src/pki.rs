//! Certificates of a lab: one CA for Kubernetes and one for OVN, new for each lab.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use crate::error::{Error, Result, read_file, write_file};

/// Paths of a certificate and its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// PEM file.
    pub certificate: PathBuf,
    /// PEM file.
    pub key: PathBuf,
}

/// A certificate authority, stored in a directory.
pub struct Authority {
    dir: PathBuf,
    /// PEM file.
    pub certificate: PathBuf,
    /// PEM file.
    pub key: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("directory", &self.dir).finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates `ca.crt` and `ca.key` in a directory.
    pub fn create(dir: &Path, name: &str) -> Result<Self> {
        let mut parameters = parameters(name, None);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let pair = new_key()?;
        let own = parameters.self_signed(&pair).map_err(certificate_error)?;
        let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        write_file(&certificate, own.pem())?;
        write_secret(&key, &pair.serialize_pem())?;
        Ok(Self { dir: dir.to_owned(), certificate, key, issuer: Issuer::new(parameters, pair) })
    }

    /// Opens an authority that [`Authority::create`] created with this name.
    pub fn open(dir: &Path, name: &str) -> Result<Self> {
        let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        let text = std::fs::read_to_string(&key).map_err(Error::io(format!("cannot read {}", key.display())))?;
        let pair = KeyPair::from_pem(&text).map_err(certificate_error)?;
        Ok(Self { dir: dir.to_owned(), certificate, key, issuer: Issuer::new(parameters(name, None), pair) })
    }

    /// Opens a CA of these files, whoever created it; certificates that it issues go into the same directory.
    pub fn from_files(dir: &Path, certificate: &str, key: &str) -> Result<Self> {
        let (certificate, key) = (dir.join(certificate), dir.join(key));
        let pair = KeyPair::from_pem(&read_file(&key)?).map_err(certificate_error)?;
        let issuer = Issuer::from_ca_cert_pem(&read_file(&certificate)?, pair).map_err(certificate_error)?;
        Ok(Self { dir: dir.to_owned(), certificate, key, issuer })
    }

    /// Issues a certificate that expired an hour ago, to test that it is rejected.
    pub fn issue_expired(&self, file: &str, common_name: &str) -> Result<Identity> {
        let mut parameters = parameters(common_name, None);
        parameters.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(2);
        parameters.not_after = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
        self.sign(file, parameters)
    }

    /// Issues `FILE.crt` and `FILE.key` for client and server use.
    pub fn issue(
        &self,
        file: &str,
        common_name: &str,
        organisation: Option<&str>,
        names: &[&str],
        addresses: &[IpAddr],
    ) -> Result<Identity> {
        let mut parameters = parameters(common_name, organisation);
        for name in names {
            parameters.subject_alt_names.push(SanType::DnsName((*name).try_into().map_err(certificate_error)?));
        }
        parameters.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        self.sign(file, parameters)
    }

    fn sign(&self, file: &str, mut parameters: CertificateParams) -> Result<Identity> {
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let pair = new_key()?;
        let signed = parameters.signed_by(&pair, &self.issuer).map_err(certificate_error)?;
        let identity =
            Identity { certificate: self.dir.join(format!("{file}.crt")), key: self.dir.join(format!("{file}.key")) };
        write_file(&identity.certificate, signed.pem())?;
        write_secret(&identity.key, &pair.serialize_pem())?;
        Ok(identity)
    }
}

/// Names of the databases of a hosted control plane in a namespace: the members, by their headless Service, and the Service
/// for the nodes of the hosted cluster.
pub fn hosted_database_names(namespace: &str) -> Vec<String> {
    ["*.ovnkube-master-internal", "ovnkube-master-internal", "ovnkube-master-external"]
        .iter()
        .map(|name| format!("{name}.{namespace}.svc.cluster.local"))
        .collect()
}

/// Creates the key pair that signs service account tokens; returns the private and the public key file.
pub(crate) fn signing_key(dir: &Path) -> Result<(PathBuf, PathBuf)> {
    let pair = new_key()?;
    let (private, public) = (dir.join("sa.key"), dir.join("sa.pub"));
    write_secret(&private, &pair.serialize_pem())?;
    write_file(&public, pair.public_key_pem())?;
    Ok((private, public))
}

fn parameters(common_name: &str, organisation: Option<&str>) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organisation) = organisation {
        parameters.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    let now = time::OffsetDateTime::now_utc();
    // In the past, in case clocks differ.
    parameters.not_before = now - time::Duration::hours(1);
    parameters.not_after = now + time::Duration::days(365);
    parameters
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate().map_err(certificate_error)
}

fn certificate_error(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("cannot create the lab's certificates: {error}"))
}

pub(crate) fn write_secret(path: &Path, content: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    write_file(path, content)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(Error::io(format!("cannot protect {}", path.display())))
}
