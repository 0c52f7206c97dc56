//! Attempts with the token of the signer.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pki::{CHASSIS_SIGNER, Domain, Policy, create_authority_of};
use serde_json::{Value, json};

use crate::accounts::{events, rights};
use crate::api::{Caller, PatchKind};
use crate::certificates::{self, request, row};
use crate::report::{Report, Scope};
use crate::site::{NAMESPACE, Site};

const OWN: Scope = Scope::Own;
const FOREIGN: Scope = Scope::Foreign;

/// A Secret without content; Secrets for TLS need their keys.
pub(crate) fn secret(name: &str, kind: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name},
        "data": {"tls.crt": "", "tls.key": ""}})
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}})
}

/// The token of a signer.
pub(crate) fn attack(site: &Site, report: &mut Report) {
    let (caller, reader) = (site.signer(), site.administrator());
    report.heading("The signer's credentials");
    report.paragraph(
        "Account `ovnkube-pki`, which signers on control-plane nodes have. The keys of both CAs are its own.",
    );
    rights(site, report, "ovnkube-pki");
    report.table(&["attempt", "whose", "result"]);
    objects(report, &caller, &reader);
    requests(site, report, &caller, &reader);
    events(report, &caller, &reader, "ovnkube-pki", "signer");
}

/// What it stores, and what others do.
fn objects(report: &mut Report, caller: &Caller<'_>, reader: &Caller<'_>) {
    let of = |kind: &str| format!("/api/v1/namespaces/{NAMESPACE}/{kind}");
    let (secrets, config_maps) = (of("secrets"), of("configmaps"));
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let tls = "kubernetes.io/tls";
    let mut token = secret("ovn-cert", "kubernetes.io/service-account-token");
    token["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "ovnkube-master"});
    reader.create(&secrets, &secret("other", "Opaque"));
    reader.create(&config_maps, &config_map("other"));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "intruder"},
        "spec": {"serviceAccountName": "ovnkube-master", "containers": [{"name": "c", "image": "intruder"}]}});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let attempts = [
        (FOREIGN, "Secret `ovn-cert` with the token of the controller's account", caller.create(&secrets, &token)),
        (OWN, "Secret `ovn-ca`", caller.create(&secrets, &secret("ovn-ca", tls))),
        (OWN, "Secret `ovn-node-ca`", caller.create(&secrets, &secret("ovn-node-ca", tls))),
        (OWN, "Secret `ovn-cert`", caller.create(&secrets, &secret("ovn-cert", tls))),
        (
            OWN,
            "annotation of Secret `ovn-ca`",
            caller.patch(
                &format!("{secrets}/ovn-ca"),
                PatchKind::Merge,
                &json!({"metadata": {"annotations": {"a": "b"}}}),
            ),
        ),
        (OWN, "ConfigMap `ovn-node-ca`", caller.create(&config_maps, &config_map("ovn-node-ca"))),
        (OWN, "ConfigMap `ovn-chassis`", caller.create(&config_maps, &config_map("ovn-chassis"))),
        (
            OWN,
            "any ConfigMap, without effect (dry run)",
            caller.create(&format!("{config_maps}?dryRun=All"), &config_map("clock")),
        ),
        (OWN, "Lease `ovnkube-pki`", caller.create(&leases, &lease("ovnkube-pki"))),
        (FOREIGN, "a new Secret of another name", caller.create(&secrets, &secret("intruder", tls))),
        (
            FOREIGN,
            "a new Secret in another namespace",
            caller.create("/api/v1/namespaces/default/secrets", &secret("ovn-ca", tls)),
        ),
        (FOREIGN, "reading another Secret", caller.get(&format!("{secrets}/other"))),
        (FOREIGN, "list of all Secrets", caller.get(&secrets)),
        (FOREIGN, "another Secret", caller.replace(&format!("{secrets}/other"), &secret("other", "Opaque"))),
        (FOREIGN, "a new ConfigMap of another name", caller.create(&config_maps, &config_map("intruder"))),
        (FOREIGN, "another ConfigMap", caller.replace(&format!("{config_maps}/other"), &config_map("other"))),
        (FOREIGN, "a new Lease of another name", caller.create(&leases, &lease("intruder"))),
        (FOREIGN, "another Lease of its namespace", caller.replace(&format!("{leases}/other"), &lease("other"))),
        (FOREIGN, "a pod with the controller's account", caller.create(&of("pods"), &pod)),
        (FOREIGN, "label of a node", caller.patch("/api/v1/nodes/n2", PatchKind::Merge, &label)),
        (
            FOREIGN,
            "`k8s.ovn.org/node-chassis-id` of a node",
            caller.patch(
                "/api/v1/nodes/n2/status",
                PatchKind::Merge,
                &json!({"metadata": {"annotations": {"k8s.ovn.org/node-chassis-id": "intruder"}}}),
            ),
        ),
    ];
    for (scope, what, answer) in attempts {
        row(report, scope, what, &answer);
    }
}

/// Answers to requests, for its own signer and for one of Kubernetes.
fn requests(site: &Site, report: &mut Report, caller: &Caller<'_>, reader: &Caller<'_>) {
    let now = std::time::SystemTime::now().try_into().unwrap();
    let certificate = create_authority_of(Domain::Nodes, &Policy::default(), now).unwrap().certificate.pem();
    let answers = |request: Value| {
        let path = format!("{}/{}", certificates::PATH, request["metadata"]["name"].as_str().unwrap());
        let mut approved = request;
        approved["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "Attack", "message": "m"}]);
        let approval = caller.replace(&format!("{path}/approval"), &approved);
        // Approved in any case, so that nothing but the signature can be refused.
        reader.replace(&format!("{path}/approval"), &approved);
        let mut signed = reader.get(&path);
        signed["status"]["certificate"] = BASE64_STANDARD.encode(&certificate).into();
        (approval, caller.replace(&format!("{path}/status"), &signed))
    };
    let (approval, signature) = answers(site.agent().create(certificates::PATH, &request(CHASSIS_SIGNER, &[])));
    row(report, OWN, "approval of a request for a chassis' certificate", &approval);
    row(report, OWN, "signature of a request for a chassis' certificate", &signature);
    let mut client = request("kubernetes.io/kube-apiserver-client", &[]);
    client["spec"]["usages"] = json!(["digital signature", "client auth"]);
    let (approval, signature) = answers(reader.create(certificates::PATH, &client));
    row(report, FOREIGN, "approval of a request for a client certificate of the API server", &approval);
    row(report, FOREIGN, "signature of a request for a client certificate of the API server", &signature);
    let own = caller.create(certificates::PATH, &request(CHASSIS_SIGNER, &[]));
    row(report, FOREIGN, "request for a certificate", &own);
}
