//! Certificates of a lab: one authority for Kubernetes and one for OVN, made anew for each lab.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use crate::error::{Error, Result, write_file};

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate (PEM).
    pub certificate: PathBuf,
    /// The private key (PEM).
    pub key: PathBuf,
}

/// A certificate authority whose certificate is a file.
pub struct Authority {
    folder: PathBuf,
    /// Its own certificate (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes an authority in a folder.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        let mut parameters = parameters(name, None);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let pair = new_key()?;
        let own = parameters.self_signed(&pair).map_err(broken)?;
        let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
        write_file(&certificate, own.pem())?;
        write_secret(&key, &pair.serialize_pem())?;
        Ok(Self { folder: folder.to_owned(), certificate, key, issuer: Issuer::new(parameters, pair) })
    }

    /// Issues a certificate that ran out an hour ago, for those who must refuse it.
    pub fn issue_expired(&self, file: &str, common_name: &str) -> Result<Identity> {
        let mut parameters = parameters(common_name, None);
        parameters.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(2);
        parameters.not_after = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
        self.sign(file, parameters)
    }

    /// Issues a certificate for client and server use.
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
            parameters.subject_alt_names.push(SanType::DnsName((*name).try_into().map_err(broken)?));
        }
        parameters.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        self.sign(file, parameters)
    }

    fn sign(&self, file: &str, mut parameters: CertificateParams) -> Result<Identity> {
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let pair = new_key()?;
        let signed = parameters.signed_by(&pair, &self.issuer).map_err(broken)?;
        let identity = Identity {
            certificate: self.folder.join(format!("{file}.crt")),
            key: self.folder.join(format!("{file}.key")),
        };
        write_file(&identity.certificate, signed.pem())?;
        write_secret(&identity.key, &pair.serialize_pem())?;
        Ok(identity)
    }
}

/// Makes a key pair for signing service-account tokens; returns the private and the public key's file.
pub fn signing_key(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let pair = new_key()?;
    let (private, public) = (folder.join("sa.key"), folder.join("sa.pub"));
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
    // A little in the past, for machines whose clocks differ.
    parameters.not_before = now - time::Duration::hours(1);
    parameters.not_after = now + time::Duration::days(365);
    parameters
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate().map_err(broken)
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("cannot make the lab's certificates: {error}"))
}

fn write_secret(path: &Path, content: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    write_file(path, content)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(Error::io(format!("cannot protect {}", path.display())))
}
