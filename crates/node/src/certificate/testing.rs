//! A signer of the tests, and directories that disappear with the test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use pki::{Authority, ChassisCertificate, ChassisKey, Policy, create_authority};
use rcgen::{CertificateSigningRequestParams, Issuer, KeyPair};

/// Seconds after some moment.
pub(super) fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A CA of nodes.
pub(super) struct Signer {
    pub(super) authority: Authority,
}

impl Signer {
    pub(super) fn new() -> Self {
        Self { authority: create_authority(&Policy::default(), moment(-10_000)).unwrap() }
    }

    /// Answers a request with a certificate that is valid between two moments.
    pub(super) fn sign(&self, request: &str, from: i64, until: i64) -> String {
        let key = KeyPair::from_pem(self.authority.key.pem()).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&self.authority.certificate.pem(), key).unwrap();
        let mut request = CertificateSigningRequestParams::from_pem(request).unwrap();
        let date = |seconds| time::OffsetDateTime::from_unix_timestamp(moment(seconds).as_second()).unwrap();
        request.params.not_before = date(from);
        request.params.not_after = date(until);
        request.params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth, rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        request.signed_by(&issuer).unwrap().pem()
    }

    pub(super) fn issue(&self, chassis: &str, node: &str, from: i64, until: i64) -> ChassisCertificate {
        let request = ChassisKey::create(chassis, node).unwrap();
        request.accept(self.sign(request.pem(), from, until).as_bytes(), moment(until - 1)).unwrap()
    }
}

/// A directory of one test.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
}

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ovnkube-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
