//! The node's certificate, with a signer of the test: requests in the API, files on the node.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lab::Family;
use pki::{Authority, CHASSIS_REQUEST_PREFIX, CHASSIS_SIGNER, CHASSIS_USAGES, ChassisCertificate, Policy};
use rcgen::{CertificateSigningRequestParams, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::agent::wait_condition;
use crate::cluster::{TIMEOUT, until};
use crate::site::Site;

const DIRECTORY: &str = "/run/ovn-pki";
const PUBLISHED: &str = "/run/ovn-node-ca";
const REQUESTS: &str = "certificatesigningrequests";

/// Approves and signs as `ovnkube pki serve` does, when the test asks for it.
struct Signer<'a> {
    site: &'a Site,
    authority: Authority,
}

impl<'a> Signer<'a> {
    /// A new CA, which the node sees at once.
    fn publish(site: &'a Site) -> Self {
        let authority = pki::create_authority(&Policy::default(), now()).unwrap();
        let directory = site.path(1, PUBLISHED);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("ca-bundle.crt"), authority.certificate.pem()).unwrap();
        Self { site, authority }
    }

    fn sign(&self, request: &Value) -> String {
        let text = BASE64_STANDARD.decode(request["spec"]["request"].as_str().unwrap()).unwrap();
        let mut request = CertificateSigningRequestParams::from_pem(std::str::from_utf8(&text).unwrap()).unwrap();
        let key = KeyPair::from_pem(self.authority.key.pem()).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&self.authority.certificate.pem(), key).unwrap();
        let date = |offset: i64| time::OffsetDateTime::from_unix_timestamp(now().as_second() + offset).unwrap();
        (request.params.not_before, request.params.not_after) = (date(-3600), date(86400));
        request.params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth, rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        request.signed_by(&issuer).unwrap().pem()
    }

    /// Answers a request; returns the certificate.
    fn answer(&self, request: &Value) -> String {
        let (lab, name) = (&self.site.cluster.lab, request["metadata"]["name"].as_str().unwrap());
        lab.kubectl(&["certificate", "approve", name]).unwrap();
        let certificate = self.sign(request);
        let status = json!({"status": {"certificate": BASE64_STANDARD.encode(&certificate)}}).to_string();
        lab.kubectl(&["patch", "csr", name, "--subresource=status", "--type=merge", "-p", &status]).unwrap();
        certificate
    }
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// The next request without an answer.
fn pending(site: &Site) -> Value {
    until("a request for a certificate", || {
        let list = site.cluster.get(&[REQUESTS]);
        let waits = |request: &&Value| {
            request["spec"]["signerName"] == CHASSIS_SIGNER && request["status"]["conditions"].is_null()
        };
        list["items"].as_array()?.iter().find(waits).cloned()
    })
}

/// The pair in effect on the node.
fn current(site: &Site) -> Option<ChassisCertificate> {
    let read = |file: &str| std::fs::read(site.path(1, DIRECTORY).join("current").join(file)).ok();
    ChassisCertificate::from_pem(&read("tls.crt")?, &read("tls.key")?).ok()
}

fn await_certificate(site: &Site, certificate: &str) -> ChassisCertificate {
    until("the certificate is stored", || current(site).filter(|current| current.chain == certificate))
}

#[test]
fn the_agent_requests_stores_and_renews_the_certificate_of_its_chassis() {
    let site = Site::start("agent-certificate", 1, Family::V4);
    let first = Signer::publish(&site);
    let bundle = format!("{PUBLISHED}/ca-bundle.crt");
    site.agents(&["--sb-certificate-dir", DIRECTORY, "--sb-node-authorities", &bundle]);
    let mut request = pending(&site);
    assert!(request["metadata"]["name"].as_str().unwrap().starts_with(CHASSIS_REQUEST_PREFIX));
    assert_eq!(request["spec"]["usages"], json!(CHASSIS_USAGES));
    let node = site.cluster.get(&["node", "n1"]);
    assert_eq!(node["metadata"]["annotations"]["k8s.ovn.org/node-chassis-id"], "n1", "written before the request");
    // This lab's ovn-controller needs no certificate, so pods are connected without one.
    wait_condition(&site, 1, "True", "can be connected");
    let stored = await_certificate(&site, &first.answer(&request));
    assert_eq!(
        (stored.chassis.as_str(), &stored.certificate.names[..]),
        ("n1", &["n1".to_owned(), "ovnkube-node".into()][..])
    );
    until("the metric", || {
        let expiry = site.metric(1, "ovnkube_node_certificate_expiry_timestamp_seconds");
        (expiry as i64 == stored.certificate.not_after.as_second()).then_some(())
    });

    // A restart requests nothing: the next request is that of the next CA.
    let requests = || site.cluster.get(&[REQUESTS])["items"].as_array().unwrap().len();
    let before = requests();
    site.cluster.lab.terminate("agent-n1", TIMEOUT).unwrap();
    site.cluster.lab.restart("agent-n1").unwrap();
    let second = Signer::publish(&site);
    let answered = std::mem::replace(&mut request, pending(&site));
    assert_eq!(requests(), before + 1);

    // Refused: the certificate in effect stays, and people hear of it.
    let name = request["metadata"]["name"].as_str().unwrap();
    site.cluster.lab.kubectl(&["certificate", "deny", name]).unwrap();
    site.cluster.event_in(
        "default",
        "n1",
        "NodeCertificateFailed",
        &["the signer refused a certificate for chassis n1"],
    );
    assert_eq!(current(&site).as_ref(), Some(&stored));
    // An answer to another request is not used, either.
    let request = pending(&site);
    let foreign = second.sign(&answered);
    site.cluster.lab.kubectl(&["certificate", "approve", request["metadata"]["name"].as_str().unwrap()]).unwrap();
    let status = json!({"status": {"certificate": BASE64_STANDARD.encode(foreign)}}).to_string();
    let name = request["metadata"]["name"].as_str().unwrap();
    site.cluster.lab.kubectl(&["patch", "csr", name, "--subresource=status", "--type=merge", "-p", &status]).unwrap();
    site.cluster.event_in("default", "n1", "NodeCertificateFailed", &["does not belong to the certificate"]);
    assert_eq!(current(&site).as_ref(), Some(&stored));
    let renewed = await_certificate(&site, &second.answer(&pending(&site)));
    assert_ne!(renewed.key, stored.key);

    // Revoked: replaced at once.
    std::fs::write(site.path(1, PUBLISHED).join("revoked"), format!("{}\n", renewed.fingerprint)).unwrap();
    await_certificate(&site, &second.answer(&pending(&site)));
    assert!(site.metric(1, "ovnkube_node_certificate_renewals_total") >= 2.0);
}
