//! Alerts of the signer: it runs as a program with lifetimes of minutes and the account of its manifest, from which the test takes
//! rights away.

use lab::{Kubernetes, Lab, LabSpec, Program};
use serde_json::{Value, json};

use crate::coverage::SIGNER;
use crate::watch::{AlertWatch, until};

const COMPRESSION: u32 = 60;
const METRICS: &str = "127.0.0.1:9108";
const MANIFEST: &str = include_str!("../../../../deploy/ovnkube/pki.yaml");
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
        .arguments(["--distribution-delay", "4s"])
        .arguments(["--metrics-bind-address", METRICS]);
    lab.run(&program).unwrap();
}

/// Applies the manifest with a smaller set of rights.
fn narrow(lab: &Lab, rights: &str, fewer: &str) {
    let narrowed = MANIFEST.replace(rights, fewer);
    assert_ne!(MANIFEST, narrowed, "{rights:?} is not in pki.yaml");
    lab.apply(&narrowed).unwrap();
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
