//! Alerts of the signer: it runs as a program with lifetimes of minutes and the account of its manifest, from which the test takes
//! rights away.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use lab::{Kubernetes, Lab, LabSpec, Program};
use serde_json::{Value, json};

use crate::coverage::SIGNER;
use crate::watch::{AlertWatch, until};

const COMPRESSION: u32 = 60;
const METRICS: &str = "127.0.0.1:9108";
const MANIFEST: &str = include_str!("../../../../deploy/ovnkube/pki.yaml");
const REQUEST: &str = include_str!("../../../pki/tests/requests/rsa1024.pem");
const KUBECONFIG: &str = "/run/signer.kubeconfig";

#[test]
#[ignore = "takes about five minutes: make test-alerts"]
fn alerts_of_the_signer_fire_and_resolve() {
    let spec = LabSpec::for_test("signer").unwrap().kubernetes(Kubernetes::default()).scraping(COMPRESSION, [METRICS]);
    let lab = Lab::start(spec).unwrap();
    let watch = AlertWatch::new(lab.prometheus().unwrap());
    start_signer(&lab);
    watch.await_targets(1);
    until("the signer leads and has issued", || {
        watch.query("ovnkube_pki_leader") == Some(1.0) && watch.query("sum(ovnkube_pki_issued_total)") >= Some(2.0)
    });
    denied_request(&lab, &watch);
    silent_node(&lab, &watch);
    not_elected(&lab, &watch);
    forbidden_renewal(&lab, &watch);
    unusable_authority(&lab, &watch);
    watch.assert_complete(SIGNER);
}

/// Applies the manifest, whose DaemonSet has no node, and runs a signer with that account.
fn start_signer(lab: &Lab) {
    lab.kubectl(&["create", "namespace", "ovn-kubernetes"]).unwrap();
    lab.apply(MANIFEST).unwrap();
    let token = lab.kubectl(&["-n", "ovn-kubernetes", "create", "token", "ovnkube-pki", "--duration=1h"]).unwrap();
    let text = lab.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"]).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let write = format!("cat > {KUBECONFIG}");
    lab.machine("control").unwrap().run_with_input(&["sh", "-c", &write], &config.to_string()).unwrap();
    let program = Program::new("signer", env!("CARGO_BIN_EXE_ovnkube"))
        .arguments([
            "pki",
            "serve",
            "--namespace",
            "ovn-kubernetes",
            "--identity",
            "signer",
            "--kubeconfig",
            KUBECONFIG,
        ])
        .arguments([
            "--ca-lifetime",
            "2h",
            "--ca-renew-after",
            "1h",
            "--leaf-lifetime",
            "4m",
            "--leaf-renew-after",
            "1m",
        ])
        // It also sets how often the signer looks, which has to fit the compressed rules.
        .arguments(["--distribution-delay", "4s", "--revoke-deleted-after", "5s"])
        .arguments(["--metrics-bind-address", METRICS]);
    lab.run(&program).unwrap();
}

/// Applies the manifest with a smaller set of rights.
fn narrow(lab: &Lab, rights: &str, fewer: &str) {
    let narrowed = MANIFEST.replace(rights, fewer);
    assert_ne!(MANIFEST, narrowed, "{rights:?} is not in pki.yaml");
    lab.apply(&narrowed).unwrap();
}

/// A client other than a node's agent requests a certificate of a node.
fn denied_request(lab: &Lab, watch: &AlertWatch) {
    let alerts = ["OvnkubePkiRequestsDenied"];
    watch.assert_inactive(&alerts);
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "stranger"},
        "spec": {"signerName": "k8s.ovn.org/chassis", "request": BASE64.encode(REQUEST), "usages": ["client auth"]}});
    lab.apply(&request.to_string()).unwrap();
    watch.fires(&alerts);
    watch.resolves(&alerts);
}

/// A node got a certificate long ago and has not come back. When its Node is deleted, its certificate is revoked.
fn silent_node(lab: &Lab, watch: &AlertWatch) {
    let alerts = ["OvnkubePkiNodeCertificateExpiresSoon"];
    watch.assert_inactive(&alerts);
    lab.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "silent"}}).to_string()).unwrap();
    let uid = lab.kubectl(&["get", "node", "silent", "-o", "jsonpath={.metadata.uid}"]).unwrap();
    let at = |days: i64| jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
    let claim = json!({"node": "silent", "nodeUid": uid.trim(), "certificates": [{"fingerprint": "ab".repeat(32),
        "notAfter": at(40).to_string(), "issued": at(-140).to_string(), "issuer": "CN=ca"}]});
    let record = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"silent": claim.to_string()},
        "metadata": {"name": "ovn-chassis", "namespace": "ovn-kubernetes"}});
    lab.apply(&record.to_string()).unwrap();
    watch.fires(&alerts);
    lab.kubectl(&["delete", "node", "silent"]).unwrap();
    watch.resolves(&alerts);
    let key = ["-n", "ovn-kubernetes", "get", "configmap", "ovn-node-ca", "-o", "jsonpath={.data.revoked}"];
    assert!(lab.kubectl(&key).unwrap().contains(&"ab".repeat(32)));
}

/// The signer may not write its Lease. One that leads continues, as nobody else can take it; one that starts waits.
fn not_elected(lab: &Lab, watch: &AlertWatch) {
    let alerts = ["OvnkubePkiNoSigner"];
    watch.assert_inactive(&alerts);
    let lease = "resourceNames: [ovnkube-pki]\n    verbs: ";
    narrow(lab, &format!("{lease}[get, list, watch, update]"), &format!("{lease}[get, list, watch]"));
    lab.kill("signer").unwrap();
    lab.restart("signer").unwrap();
    watch.fires(&alerts);
    lab.apply(MANIFEST).unwrap();
    watch.resolves(&alerts);
}

/// The signer may not write the certificate, which expires.
fn forbidden_renewal(lab: &Lab, watch: &AlertWatch) {
    let alerts = ["OvnkubePkiRenewalFailing", "OvnkubePkiCertificateExpiresSoon"];
    watch.assert_inactive(&alerts);
    let secret = "resources: [secrets]\n    resourceNames: [ovn-cert]\n    verbs: ";
    narrow(lab, &format!("{secret}[get, update]"), &format!("{secret}[get]"));
    watch.fires(&alerts);
    lab.apply(MANIFEST).unwrap();
    watch.resolves(&alerts);
}

/// The key of the CA is damaged, and restored.
fn unusable_authority(lab: &Lab, watch: &AlertWatch) {
    let alerts = ["OvnkubePkiBlocked"];
    watch.assert_inactive(&alerts);
    let key = ["-n", "ovn-kubernetes", "get", "secret", "ovn-ca", "-o", "jsonpath={.data.tls\\.key}"];
    let key = lab.kubectl(&key).unwrap();
    let set = |key: &str| {
        let patch = json!({"data": {"tls.key": key}}).to_string();
        lab.kubectl(&["-n", "ovn-kubernetes", "patch", "secret", "ovn-ca", "--type=merge", "-p", &patch]).unwrap();
    };
    set("Z2FyYmFnZQ==");
    watch.fires(&alerts);
    set(key.trim());
    watch.resolves(&alerts);
}
