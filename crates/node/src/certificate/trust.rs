//! What the signer publishes to nodes: their CAs, the one that signs first, and the certificates that it has revoked. Files of
//! the ConfigMap `ovn-node-ca`, read again each time.

use std::collections::BTreeSet;
use std::path::Path;

use pki::Certificate;

/// The list of revoked certificates, next to the bundle.
const REVOKED: &str = "revoked";

/// What was published. Without files nothing is known, which is no failure: the signer may not have started yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Published {
    /// The CA that signs; none if the bundle is missing or its first certificate cannot be read.
    pub(super) authority: Option<Certificate>,
    /// SHA-256 in lower-case hexadecimal digits.
    pub(super) revoked: BTreeSet<String>,
}

impl Published {
    /// Reads the bundle and the list next to it. Blocks.
    pub(super) fn read(bundle: &Path) -> Self {
        let authority = std::fs::read(bundle).ok().and_then(|text| Certificate::from_pem(&text).ok());
        let list = std::fs::read_to_string(bundle.with_file_name(REVOKED)).unwrap_or_default();
        Self { authority, revoked: fingerprints(&list) }
    }
}

/// One fingerprint a line; `#` starts a comment. Also accepts the form of `openssl x509 -fingerprint`: `AB:CD:…`.
fn fingerprints(list: &str) -> BTreeSet<String> {
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(|line| line.replace(':', "").to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Scratch, Signer};
    use super::*;

    #[test]
    fn fingerprints_are_one_a_line() {
        let list = fingerprints("# stolen\nab12 # node n1\n\n  CD:34  \n");
        assert_eq!(list, ["ab12".to_owned(), "cd34".to_owned()].into());
    }

    #[test]
    fn the_first_ca_signs_and_missing_files_say_nothing() {
        let scratch = Scratch::new("trust");
        let bundle = scratch.path.join("ca-bundle.crt");
        let nothing = Published::read(&bundle);
        assert!(nothing.authority.is_none() && nothing.revoked.is_empty());
        let (one, other) = (Signer::new().authority.certificate, Signer::new().authority.certificate);
        std::fs::write(&bundle, format!("# CAs of nodes\n{}{}", one.pem(), other.pem())).unwrap();
        std::fs::write(scratch.path.join("revoked"), "ff00\n").unwrap();
        let published = Published::read(&bundle);
        assert_eq!(published.authority.unwrap(), one);
        assert_eq!(published.revoked, ["ff00".to_owned()].into());
        std::fs::write(&bundle, "half-written").unwrap();
        assert!(Published::read(&bundle).authority.is_none());
    }
}
