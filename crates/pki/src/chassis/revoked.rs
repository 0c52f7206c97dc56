//! The list of revoked certificates: key `revoked` of ConfigMap `ovn-node-ca`.
//!
//! ```text
//!   # until 2027-01-01T00:00:00Z: node n1, chassis 5f0c…
//!   9f86d081884c7d65…      lower-case hex SHA-256 of the certificate
//! ```

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::certificate::Fingerprint;
use crate::chassis::record::NodeCertificate;

const UNTIL: &str = "# until ";

/// Revoked certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revoked {
    fingerprints: BTreeSet<Fingerprint>,
    /// Lines that are neither a fingerprint nor a comment, in the order of the text.
    pub unreadable: Vec<String>,
}

impl Revoked {
    /// Parses the list. Lines that cannot be read do not affect the others.
    pub fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match Fingerprint::from_hex(line) {
                Some(fingerprint) => _ = list.fingerprints.insert(fingerprint),
                None => list.unreadable.push(line.to_owned()),
            }
        }
        list
    }

    /// Whether a certificate is revoked.
    pub fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.fingerprints.contains(&fingerprint)
    }

    /// How many certificates are revoked.
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// Whether none is revoked.
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// A text with another certificate; the same if it has it.
    pub fn add(text: &str, certificate: &NodeCertificate, of: &str) -> String {
        if Self::parse(text).contains(certificate.fingerprint) {
            return text.to_owned();
        }
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let of = of.replace(['\n', '\r'], " ");
        format!("{text}{end}{UNTIL}{}: {of}\n{}\n", certificate.not_after, certificate.fingerprint.hex())
    }

    /// The text without the certificates that have expired according to the comment before them. All other lines stay.
    pub fn without_expired(text: &str, now: Timestamp) -> String {
        let mut kept = String::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let until = line.strip_prefix(UNTIL).and_then(|rest| rest.split_once(": ")?.0.parse::<Timestamp>().ok());
            let of_certificate = lines.peek().is_some_and(|next| Fingerprint::from_hex(next.trim()).is_some());
            if until.is_some_and(|until| until <= now) && of_certificate {
                lines.next();
                continue;
            }
            kept.push_str(line);
            kept.push('\n');
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::tests::{authority, leaf, moment};

    fn certificate(issued: i64) -> NodeCertificate {
        NodeCertificate::new(&leaf(&authority(0), issued).certificate, moment(issued))
    }

    #[test]
    fn a_list_is_extended_and_shortened_and_keeps_what_people_wrote() {
        let (one, other) = (certificate(0), certificate(1000));
        let text = Revoked::add("# stolen in May\nabc", &one, "node n1\nfoo");
        let text = Revoked::add(&text, &other, "node n2");
        assert_eq!(Revoked::add(&text, &one, "node n1"), text);
        let list = Revoked::parse(&text);
        assert!(list.contains(one.fingerprint) && list.contains(other.fingerprint));
        assert_eq!((list.len(), list.unreadable), (2, vec!["abc".to_owned()]), "{text}");
        let left = Revoked::parse(&Revoked::without_expired(&text, one.not_after));
        assert!(!left.contains(one.fingerprint) && left.contains(other.fingerprint));
        assert!(Revoked::without_expired(&text, one.not_after).starts_with("# stolen in May\nabc\n# until "));
        assert!(Revoked::parse("").is_empty());
    }
}
