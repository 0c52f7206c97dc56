//! Attempts with requests for certificates, and with the CA of nodes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pki::{CHASSIS_REQUEST_PREFIX, CHASSIS_SIGNER, CHASSIS_USAGES, ChassisKey};
use serde_json::{Value, json};

use crate::accounts::verdict;
use crate::api::PatchKind;
use crate::report::{Report, Scope};
use crate::site::{NAMESPACE, Site};

pub(crate) const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A request of the chassis of n1; `more` are usages besides those that agents ask for.
pub(crate) fn request(signer: &str, more: &[&str]) -> Value {
    let request = ChassisKey::create("n1", "n1").unwrap();
    let usages = [&CHASSIS_USAGES[..], more].concat();
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": CHASSIS_REQUEST_PREFIX},
        "spec": {"request": BASE64_STANDARD.encode(request.pem()), "signerName": signer, "usages": usages}})
}

/// What the agent of n1 can do about certificates.
pub(crate) fn requests(site: &Site, report: &mut Report) {
    let (agent, unbound) = (site.agent(), site.unbound_agent());
    let own = agent.create(PATH, &request(CHASSIS_SIGNER, &[]));
    let name = own["metadata"]["name"].as_str().unwrap_or("none").to_owned();
    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Attack"}]}});
    let signed = json!({"status": {"certificate": BASE64_STANDARD.encode("certificate")}});
    let of = |subresource: &str| format!("{PATH}/{name}/{subresource}");
    let attempts = [
        (Scope::Own, "request for a chassis' certificate", own),
        (
            Scope::Foreign,
            "request for a client certificate of the API server",
            agent.create(PATH, &request("kubernetes.io/kube-apiserver-client", &[])),
        ),
        (
            Scope::Foreign,
            "request for a kubelet's certificate",
            agent.create(PATH, &request("kubernetes.io/kube-apiserver-client-kubelet", &[])),
        ),
        (
            Scope::Foreign,
            "request for a chassis' certificate that may sign others",
            agent.create(PATH, &request(CHASSIS_SIGNER, &["cert sign"])),
        ),
        (
            Scope::Foreign,
            "request for a chassis' certificate, with a token that names no node",
            unbound.create(PATH, &request(CHASSIS_SIGNER, &[])),
        ),
        (Scope::Foreign, "approval of its request", agent.patch(&of("approval"), PatchKind::Merge, &approved)),
        (Scope::Foreign, "signature of its request", agent.patch(&of("status"), PatchKind::Merge, &signed)),
        (Scope::Foreign, "list of all requests", agent.get(PATH)),
    ];
    for (scope, what, answer) in attempts {
        row(report, scope, what, &answer);
    }
    for secret in ["ovn-node-ca", "ovn-ca", "ovn-cert"] {
        let answer = agent.get(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{secret}"));
        row(report, Scope::Foreign, &format!("Secret `{secret}`"), &answer);
    }
    let record = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/ovn-chassis");
    let answer = agent.patch(&record, PatchKind::Merge, &json!({"data": {"n1": "{}"}}));
    row(report, Scope::Foreign, "ConfigMap `ovn-chassis`", &answer);
}

pub(crate) fn row(report: &mut Report, scope: Scope, what: &str, answer: &Value) {
    let result = verdict(answer);
    report.row(&[what, if scope == Scope::Own { "its own" } else { "foreign" }, &result]);
    report.attempts.push((scope, format!("{what}: {answer}"), result == "allowed"));
}
