//! What the Secrets and the ConfigMap contain.
//!
//! | object | key | content |
//! |---|---|---|
//! | Secret `ovn-ca` | `tls.crt`, `tls.key` | the CA that signs |
//! | | `next.crt`, `next.key` | the next CA, during a rotation |
//! | | `previous.json` | former CAs that are still trusted, without their keys |
//! | ConfigMap `ovn-ca` | `ca-bundle.crt` | all trusted CAs, and those that an administrator added |
//! | Secret `ovn-cert` | `tls.crt`, `tls.key` | the certificate of the control plane |
//!
//! Secret and ConfigMap `ovn-node-ca` are the same for the nodes' CA. What it issues is recorded in ConfigMap `ovn-chassis`
//! ([`crate::Record`]).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, Fingerprint};
use crate::domain::Domain;
use crate::issue::{Authority, IssueError};

/// Values of a Secret or ConfigMap by key.
pub type Data = BTreeMap<String, Vec<u8>>;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const PREVIOUS: &str = "previous.json";

/// An object that may be missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored<T> {
    /// It does not exist.
    Missing,
    /// Its content cannot be used; why.
    Unusable(String),
    /// Its content.
    Present(T),
}

impl<T> Stored<T> {
    /// The content, if it can be used.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(content) => Some(content),
            Self::Missing | Self::Unusable(_) => None,
        }
    }
}

/// The three objects of a domain, as they were read. The CA must be read last: then a signer that uses an outdated CA cannot
/// replace a newer bundle or certificate, because its write names an older resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The Secret of the CAs.
    pub authorities: Stored<AuthoritySet>,
    /// The ConfigMap of the bundle; one without the key is an empty bundle.
    pub bundle: Stored<Bundle>,
    /// What the CAs have issued.
    pub issued: Issued,
}

impl Observed {
    /// Whose CAs they are.
    pub fn domain(&self) -> Domain {
        match self.issued {
            Issued::Published(_) => Domain::ControlPlane,
            Issued::OnRequest(_) => Domain::Nodes,
        }
    }

    /// Whether programs that trust the bundle accept the published certificate.
    pub fn leaf_is_accepted(&self, now: Timestamp) -> bool {
        let (bundle, leaf) = (self.bundle.present(), self.issued.leaf());
        bundle.zip(leaf).is_some_and(|(bundle, leaf)| bundle.accepts(leaf, now))
    }
}

/// What the CAs of a domain issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Issued {
    /// One certificate, for which Secret `ovn-cert` is.
    Published(Box<Stored<Leaf>>),
    /// Certificates for others' keys, as far as they are recorded.
    OnRequest(Vec<Issuance>),
}

impl Issued {
    /// The published certificate, if it can be used.
    pub fn leaf(&self) -> Option<&Leaf> {
        match self {
            Self::Published(leaf) => leaf.present(),
            Self::OnRequest(_) => None,
        }
    }

    /// Everything that is known to be issued.
    pub(crate) fn issuances(&self) -> Vec<Issuance> {
        match self {
            Self::Published(leaf) => leaf
                .present()
                .map(|leaf| &leaf.pair.certificate)
                .map(|leaf| Issuance { issuer: leaf.issuer.clone(), not_after: leaf.not_after, newest: true })
                .into_iter()
                .collect(),
            Self::OnRequest(issuances) => issuances.clone(),
        }
    }
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuance {
    /// Subject of its CA.
    pub issuer: String,
    /// End of its validity.
    pub not_after: Timestamp,
    /// Whether its owner has no newer one, so that it is in use.
    pub newest: bool,
}

/// The CAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthoritySet {
    /// Signs.
    pub signing: Authority,
    /// Is published, and will sign.
    pub next: Option<Authority>,
    /// Signed formerly, and are still trusted.
    pub previous: Vec<Former>,
    /// What an administrator requested.
    pub requests: Requests,
}

/// A former CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Former {
    /// Its certificate; its key is destroyed.
    pub certificate: Certificate,
    /// When everything that it issued has expired.
    pub retire_after: Timestamp,
    /// It leaves the bundle.
    pub retired: bool,
}

/// Annotations of the Secret of the CAs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// [`crate::ROTATE_CA`].
    pub rotate_ca: Option<String>,
    /// [`crate::ROTATE_LEAF`].
    pub rotate_leaf: Option<String>,
    /// [`crate::RETIRE`].
    pub retire: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct FormerText {
    certificate: String,
    retire_after: String,
    #[serde(default)]
    retired: bool,
}

impl AuthoritySet {
    /// Parses the data of the Secret; the error names the key.
    pub fn parse(data: &Data, requests: Requests) -> Result<Self, String> {
        let signing = pair(data, CERTIFICATE, KEY)?;
        if !signing.certificate.is_ca {
            return Err(format!("{CERTIFICATE}: {}", IssueError::NotAnAuthority));
        }
        let next = match (data.get(NEXT_CERTIFICATE), data.get(NEXT_KEY)) {
            (None, None) => None,
            _ => Some(pair(data, NEXT_CERTIFICATE, NEXT_KEY)?),
        };
        let previous = data.get(PREVIOUS).map_or(Ok(Vec::new()), |text| former(text))?;
        Ok(Self { signing, next, previous, requests })
    }

    /// The data of the Secret.
    pub fn data(&self) -> Data {
        let mut data = Data::new();
        let mut insert = |key: &str, value: String| data.insert(key.to_owned(), value.into_bytes());
        insert(CERTIFICATE, self.signing.certificate.pem());
        insert(KEY, self.signing.key.pem().to_owned());
        if let Some(next) = &self.next {
            insert(NEXT_CERTIFICATE, next.certificate.pem());
            insert(NEXT_KEY, next.key.pem().to_owned());
        }
        if !self.previous.is_empty() {
            let entries = self.previous.iter().map(|former| FormerText {
                certificate: former.certificate.pem(),
                retire_after: former.retire_after.to_string(),
                retired: former.retired,
            });
            // Texts and booleans can always be written as JSON.
            insert(PREVIOUS, serde_json::to_string_pretty(&entries.collect::<Vec<_>>()).unwrap_or_default());
        }
        data
    }

    /// All CAs of the set.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        let next = self.next.iter().map(|next| &next.certificate);
        let previous = self.previous.iter().map(|former| &former.certificate);
        std::iter::once(&self.signing.certificate).chain(next).chain(previous)
    }

    /// Those that belong into the bundle.
    pub fn trusted(&self) -> impl Iterator<Item = &Certificate> {
        let retired = |certificate: &&Certificate| {
            !self.previous.iter().any(|former| former.retired && former.certificate == **certificate)
        };
        self.certificates().filter(retired)
    }

    /// Whether a certificate is one of the set's.
    pub fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.certificates().any(|certificate| certificate.fingerprint == fingerprint)
    }
}

fn pair(data: &Data, certificate: &str, key: &str) -> Result<Authority, String> {
    let get = |name: &str| data.get(name).filter(|value| !value.is_empty()).ok_or(format!("it has no {name}"));
    let (certificate_text, key_text) = (get(certificate)?, get(key)?);
    Authority::from_pem(certificate_text, key_text).map_err(|error| match error {
        IssueError::Key(_) => format!("{key}: {error}"),
        _ => format!("{certificate}: {error}"),
    })
}

fn former(text: &[u8]) -> Result<Vec<Former>, String> {
    let problem = |problem: String| format!("{PREVIOUS}: {problem}");
    let entries: Vec<FormerText> = serde_json::from_slice(text).map_err(|error| problem(error.to_string()))?;
    let parse = |entry: FormerText| {
        let certificate =
            Certificate::from_pem(entry.certificate.as_bytes()).map_err(|error| problem(error.to_string()))?;
        let retire_after = entry.retire_after.parse().map_err(|error: jiff::Error| problem(error.to_string()))?;
        Ok(Former { certificate, retire_after, retired: entry.retired })
    };
    entries.into_iter().map(parse).collect()
}

/// The trusted CAs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// In the order of the text, each once.
    pub certificates: Vec<Certificate>,
    /// Why parts of the text are not certificates.
    pub unreadable: Vec<String>,
}

impl Bundle {
    /// Parses `ca-bundle.crt`. Parts that are not certificates do not affect the others.
    pub fn parse(text: &str) -> Self {
        let mut bundle = Self::default();
        for certificate in Certificate::all_from_pem(text.as_bytes()) {
            match certificate {
                Ok(certificate) if bundle.contains(certificate.fingerprint) => {}
                Ok(certificate) => bundle.certificates.push(certificate),
                Err(error) => bundle.unreadable.push(error.to_string()),
            }
        }
        if bundle.certificates.is_empty() && bundle.unreadable.is_empty() && !text.trim().is_empty() {
            bundle.unreadable.push("it has no PEM block CERTIFICATE".into());
        }
        bundle
    }

    /// As the text of `ca-bundle.crt`.
    pub fn text(certificates: &[Certificate]) -> String {
        certificates.iter().map(|certificate| format!("# {}\n{}", certificate.subject, certificate.pem())).collect()
    }

    /// Whether it has this certificate.
    pub fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.certificates.iter().any(|certificate| certificate.fingerprint == fingerprint)
    }

    /// Whether programs that trust this bundle accept a certificate.
    pub fn accepts(&self, leaf: &Leaf, now: Timestamp) -> bool {
        self.certificates
            .iter()
            .any(|authority| leaf.pair.certificate.is_accepted_by(authority, &leaf.intermediates, now))
    }
}

/// The certificate of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// It and its key.
    pub pair: Authority,
    /// Certificates between it and its CA, if an administrator issued it.
    pub intermediates: Vec<Certificate>,
    /// Annotation [`crate::ISSUED_FOR`].
    pub issued_for: Option<String>,
}

impl Leaf {
    /// Parses the data of Secret `ovn-cert`; the error names the key.
    pub fn parse(data: &Data, issued_for: Option<String>) -> Result<Self, String> {
        let pair = pair(data, CERTIFICATE, KEY)?;
        let all = data.get(CERTIFICATE).map(|text| Certificate::all_from_pem(text)).unwrap_or_default();
        let intermediates = all.into_iter().skip(1).collect::<Result<_, _>>();
        let intermediates = intermediates.map_err(|error| format!("{CERTIFICATE}: {error}"))?;
        Ok(Self { pair, intermediates, issued_for })
    }

    /// The data of Secret `ovn-cert`.
    pub fn data(pair: &Authority) -> Data {
        Data::from([
            (CERTIFICATE.to_owned(), pair.certificate.pem().into_bytes()),
            (KEY.to_owned(), pair.key.pem().as_bytes().to_vec()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::tests::{authority, leaf, moment};

    fn set() -> AuthoritySet {
        let former = |retired| Former { certificate: authority(0).certificate, retire_after: moment(99), retired };
        AuthoritySet {
            signing: authority(1),
            next: Some(authority(2)),
            previous: vec![former(false), former(true)],
            requests: Requests::default(),
        }
    }

    #[test]
    fn a_set_of_authorities_is_read_as_it_was_written() {
        let set = set();
        assert_eq!(AuthoritySet::parse(&set.data(), Requests::default()), Ok(set.clone()));
        assert_eq!((set.certificates().count(), set.trusted().count()), (4, 3));
        assert!(!String::from_utf8_lossy(&set.data()[PREVIOUS]).contains("PRIVATE KEY"));
    }

    #[test]
    fn damaged_secrets_are_refused_and_the_key_is_named() {
        let good = set().data();
        let leaf = leaf(&authority(0), 0);
        let parse = |key: &str, value: Option<&[u8]>| {
            let mut data = good.clone();
            match value {
                Some(value) => data.insert(key.into(), value.to_vec()),
                None => data.remove(key),
            };
            AuthoritySet::parse(&data, Requests::default()).unwrap_err()
        };
        for key in [CERTIFICATE, KEY, NEXT_CERTIFICATE, NEXT_KEY] {
            assert!(parse(key, None).contains(key), "{key}");
            assert!(parse(key, Some(b"")).contains(key), "{key}");
            assert!(parse(key, Some(b"garbage")).contains(key), "{key}");
            assert!(parse(key, Some(&good[key][..good[key].len() / 2])).contains(key), "{key}");
        }
        assert!(parse(PREVIOUS, Some(b"[{]")).contains(PREVIOUS));
        assert!(parse(KEY, Some(leaf.key.pem().as_bytes())).contains("does not belong"));
        let mut data = Leaf::data(&leaf);
        assert!(AuthoritySet::parse(&data, Requests::default()).unwrap_err().contains("not a CA"));
        assert!(Leaf::parse(&data, None).is_ok());
        data.remove(KEY);
        assert_eq!(Leaf::parse(&data, None).unwrap_err(), "it has no tls.key");
    }

    #[test]
    fn a_bundle_keeps_what_can_be_read() {
        let (one, other) = (authority(0).certificate, authority(0).certificate);
        let text = Bundle::text(&[one.clone(), other.clone()]);
        let bundle = Bundle::parse(&format!("{text}{text}"));
        assert_eq!((bundle.certificates, bundle.unreadable.len()), (vec![one.clone(), other], 0));
        let damaged = Bundle::parse(&text[..text.len() - 40]);
        assert_eq!((damaged.certificates, damaged.unreadable.len()), (vec![one], 1));
        assert_eq!(Bundle::parse("").unreadable.len(), 0);
        assert_eq!(Bundle::parse("hello").unreadable.len(), 1);
    }
}
