//! Nodes request certificates from a signer at a real API server, with the roles and policies of `deploy/` and tokens that are bound
//! to their agents' pods.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use lab::{Kubernetes, Lab, LabSpec, Program};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use crate::site::until;

const NAMESPACE: &str = "ovn-kubernetes";
const KUBECONFIG: &str = "/run/signer.kubeconfig";
const METRICS: &str = "127.0.0.1:9531";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const WEAK: &str = include_str!("../../../pki/tests/requests/rsa1024.pem");

struct Site {
    lab: Lab,
    server: String,
}

impl Site {
    fn start() -> Self {
        let lab = Lab::start(LabSpec::for_test("pki-nodes").unwrap().kubernetes(Kubernetes::default())).unwrap();
        for manifest in ["namespace.yaml", "pki.yaml", "admission.yaml"] {
            let path = format!("{}/../../deploy/ovnkube/{manifest}", env!("CARGO_MANIFEST_DIR"));
            lab.apply(&std::fs::read_to_string(path).unwrap()).unwrap();
        }
        for account in ["ovnkube-node", "ovnkube-master"] {
            lab.kubectl(&["-n", NAMESPACE, "create", "serviceaccount", account]).unwrap();
        }
        let resource = "--resource=certificatesigningrequests.certificates.k8s.io";
        lab.kubectl(&["create", "clusterrole", "requester", "--verb=create,get", resource]).unwrap();
        let group = format!("--group=system:serviceaccounts:{NAMESPACE}");
        lab.kubectl(&["create", "clusterrolebinding", "requester", "--clusterrole=requester", &group]).unwrap();
        let config = lab.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
        let site = Self { server: config.unwrap().trim().to_owned(), lab };
        for (node, chassis) in [("n1", Some("c1")), ("n2", Some("c2")), ("n3", None)] {
            let node_object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
            site.lab.apply(&node_object.to_string()).unwrap();
            if let Some(chassis) = chassis {
                site.announce(node, chassis);
            }
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": node, "namespace": NAMESPACE},
                "spec": {"nodeName": node, "serviceAccountName": "ovnkube-node",
                    "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "i"}]}});
            until("the agent's pod", || site.lab.apply(&pod.to_string()).map_err(|error| error.to_string()));
        }
        site
    }

    fn announce(&self, node: &str, chassis: &str) {
        let annotation = format!("k8s.ovn.org/node-chassis-id={chassis}");
        self.lab.kubectl(&["annotate", "--overwrite", "node", node, &annotation]).unwrap();
    }

    /// Runs the signer with the account of its manifest.
    fn start_signer(&self) {
        let token = self.token(&["ovnkube-pki"]);
        let text = self.lab.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"]).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["users"][0]["user"] = json!({ "token": token });
        let write = format!("cat > {KUBECONFIG}");
        self.lab.machine("control").unwrap().run_with_input(&["sh", "-c", &write], &config.to_string()).unwrap();
        let program = Program::new("signer", PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
            .arguments(["pki", "serve", "--namespace", NAMESPACE, "--identity", "signer", "--kubeconfig", KUBECONFIG])
            .arguments([
                "--distribution-delay",
                "5s",
                "--revoke-deleted-after",
                "5s",
                "--metrics-bind-address",
                METRICS,
            ]);
        self.lab.run(&program).unwrap();
    }

    fn token(&self, words: &[&str]) -> String {
        let words = [&["-n", NAMESPACE, "create", "token"], words].concat();
        until("a token", || self.lab.kubectl(&words).map_err(|error| error.to_string())).trim().to_owned()
    }

    /// As kubelet mounts it into the agent's pod.
    fn agent(&self, node: &str) -> String {
        self.token(&["ovnkube-node", "--bound-object-kind", "Pod", "--bound-object-name", node])
    }

    /// Creates a request and returns its name.
    fn request(&self, token: &str, pem: &str) -> String {
        let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "ovn-chassis-"},
            "spec": {"signerName": "k8s.ovn.org/chassis", "request": BASE64.encode(pem),
                "usages": ["digital signature", "client auth", "server auth"]}});
        let (url, bearer) = (format!("{}{REQUESTS}", self.server), format!("Authorization: Bearer {token}"));
        let words =
            ["curl", "-gsSk", "-H", &bearer, "-H", "Content-Type: application/json", "--data-binary", "@-", &url];
        let control = self.lab.machine("control").unwrap();
        // The authorizer sees a new role with a delay.
        until("the request is created", || {
            let answer = control.run_with_input(&words, &body.to_string()).map_err(|error| error.to_string())?;
            let answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
            answer["metadata"]["name"].as_str().map(str::to_owned).ok_or(answer.to_string())
        })
    }

    fn object(&self, words: &[&str]) -> Result<Value, String> {
        let words = [&["get", "-o", "json"], words].concat();
        let text = self.lab.kubectl(&words).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// Type and reason of the condition that ends a request.
    fn await_refusal(&self, name: &str) -> (String, String) {
        until("the request is refused", || {
            let request = self.object(&["csr", name])?;
            assert!(request["status"]["certificate"].is_null(), "{request}");
            let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let refusal = conditions.iter().find(|one| one["type"] == "Denied" || one["type"] == "Failed");
            refusal.map(|one| (text(&one["type"]), text(&one["reason"]))).ok_or_else(|| request["status"].to_string())
        })
    }

    fn await_certificate(&self, name: &str) -> pki::Certificate {
        let text = until("the certificate", || {
            let request = self.object(&["csr", name])?;
            let certificate = request["status"]["certificate"].as_str().map(str::to_owned);
            certificate.ok_or_else(|| format!("{}\n{}", request["status"], self.lab.log("signer").unwrap_or_default()))
        });
        pki::Certificate::from_pem(&BASE64.decode(text).unwrap()).unwrap()
    }

    fn await_event(&self, object: &str, reason: &str, says: &str) {
        let words = ["events", "-n", "default", "--field-selector"];
        let selector = format!("involvedObject.name={object},reason={reason}");
        until("the Event", || {
            let events = self.object(&[&words[..], &[&selector]].concat())?;
            let items = events["items"].as_array().cloned().unwrap_or_default();
            let found = items.iter().any(|event| event["message"].as_str().is_some_and(|text| text.contains(says)));
            if found { Ok(()) } else { Err(format!("{says:?} of {object}: {events}")) }
        });
    }

    fn config_map(&self, name: &str, key: &str) -> Result<String, String> {
        let object = self.object(&["-n", NAMESPACE, "configmap", name])?;
        object["data"][key].as_str().map(str::to_owned).ok_or_else(|| object.to_string())
    }

    fn bundle(&self) -> Result<Vec<pki::Certificate>, String> {
        let text = self.config_map("ovn-node-ca", "ca-bundle.crt")?;
        pki::Certificate::all_from_pem(text.as_bytes())
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())
    }

    /// Runs `ovnkube pki …` as an administrator.
    fn command(&self, name: &str, words: &[&str]) -> String {
        let program = Program::new(name, PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
            .arguments(["pki"])
            .arguments(words.iter().copied())
            .arguments(["--namespace", NAMESPACE]);
        self.lab.run(&program).unwrap();
        let ended = self.lab.wait_end(name, Duration::from_secs(60)).unwrap();
        let said = self.lab.log(name).unwrap();
        assert!(ended.success(), "{words:?}: {said}");
        said
    }
}

/// A request in PEM.
fn pem(chassis: &str, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut parameters = CertificateParams::new(names).unwrap();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, chassis);
    parameters.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

#[test]
fn nodes_get_certificates_for_their_own_chassis_only() {
    let site = Site::start();
    site.start_signer();
    let authorities = until("the nodes' CA", || site.bundle());
    assert_eq!(authorities.len(), 1);

    let (one, two) = (site.agent("n1"), site.agent("n2"));
    let own = pem("c1", &["n1", "ovnkube-node"]);
    let issued = site.await_certificate(&site.request(&one, &own));
    assert!(is_accepted(&issued, &authorities[0]), "{issued:?}");
    assert_eq!(
        (issued.subject.as_str(), issued.names.as_slice()),
        ("CN=c1", &["n1", "ovnkube-node"].map(str::to_owned)[..])
    );
    site.await_event("n1", "ChassisCertificateIssued", &issued.fingerprint.hex());
    let record = || -> Value { serde_json::from_str(&site.config_map("ovn-chassis", "c1").unwrap()).unwrap() };
    assert_eq!(record()["certificates"][0]["fingerprint"], issued.fingerprint.hex());
    let uid = site.object(&["node", "n1"]).unwrap()["metadata"]["uid"].clone();
    assert_eq!((&record()["node"], &record()["nodeUid"]), (&json!("n1"), &uid));

    refused(&site, &one, &two);
    approved_by_an_administrator(&site, &one);
    let of_three = announced_late(&site);
    revoked(&site, &issued);
    deleted_secret(&site, &one, &authorities[0]);
    assert_eq!(record()["certificates"][0]["fingerprint"], issued.fingerprint.hex(), "all certificates are recorded");
    deleted_node(&site, &of_three);
}

fn is_accepted(certificate: &pki::Certificate, authority: &pki::Certificate) -> bool {
    certificate.is_accepted_by(authority, &[], std::time::SystemTime::now().try_into().unwrap())
}

/// A token that names no node does not get this far: the admission policy refuses the request (test program `attack`).
fn refused(site: &Site, one: &str, two: &str) {
    let own = pem("c1", &["n1", "ovnkube-node"]);
    let master = site.token(&["ovnkube-master"]);
    for (what, token, request, reason, about) in [
        ("the name of n2", one, &pem("c1", &["n2", "ovnkube-node"]), "NameNotAllowed", Some("n1")),
        ("the chassis of n2", one, &pem("c2", &["n1", "ovnkube-node"]), "ChassisMismatch", Some("n1")),
        ("a weak key", one, &WEAK.to_owned(), "KeyWeak", Some("n1")),
        ("a foreign name", one, &pem("c1", &["n1", "ovnkube-node", "ovn"]), "NameNotAllowed", Some("n1")),
        ("another account", &master, &own, "WrongRequester", None),
    ] {
        let name = site.request(token, request);
        assert_eq!(site.await_refusal(&name), ("Denied".to_owned(), reason.to_owned()), "{what}");
        site.await_event(about.unwrap_or(&name), "ChassisCertificateDenied", reason);
    }
    // A node that announces the chassis of another one.
    site.announce("n2", "c1");
    let name = site.request(two, &pem("c1", &["n2", "ovnkube-node"]));
    assert_eq!(site.await_refusal(&name).1, "ChassisHeld");
    site.await_event("n2", "ChassisCertificateDenied", "belongs to Node n1");
    site.announce("n2", "c2");
}

/// While no signer runs, an administrator approves what violates a rule.
fn approved_by_an_administrator(site: &Site, one: &str) {
    site.lab.kill("signer").unwrap();
    let name = site.request(one, &pem("c2", &["n1", "ovnkube-node"]));
    site.lab.kubectl(&["certificate", "approve", &name]).unwrap();
    site.lab.restart("signer").unwrap();
    assert_eq!(site.await_refusal(&name), ("Failed".to_owned(), "ChassisMismatch".to_owned()));
}

fn announced_late(site: &Site) -> pki::Certificate {
    let three = site.agent("n3");
    let name = site.request(&three, &pem("c3", &["n3", "ovnkube-node"]));
    until("the request waits", || {
        let log = site.lab.log("signer").unwrap();
        if log.contains("request of a node waits") { Ok(()) } else { Err(log) }
    });
    site.announce("n3", "c3");
    let issued = site.await_certificate(&name);
    assert_eq!(issued.subject, "CN=c3");
    issued
}

fn revoked(site: &Site, certificate: &pki::Certificate) {
    let fingerprint = certificate.fingerprint.hex();
    assert!(site.command("revoke", &["revoke", "n1"]).contains("kubectl delete node n1"));
    let text = site.config_map("ovn-node-ca", "revoked").unwrap();
    assert!(pki::Revoked::parse(&text).contains(certificate.fingerprint), "{text}");
    let said = site.command("status", &["status", "-o", "json"]);
    let status: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let of_nodes = status["nodeCertificates"].as_array().unwrap();
    let found = of_nodes.iter().find(|one| one["fingerprint"] == fingerprint.as_str()).unwrap();
    assert_eq!((&found["revoked"], &found["node"], &found["chassis"]), (&json!(true), &json!("n1"), &json!("c1")));
    let others: Vec<&Value> = of_nodes.iter().filter(|one| one["node"] != "n1").map(|one| &one["revoked"]).collect();
    assert_eq!(others, [&json!(false)], "{status}");
    assert_eq!(status["nodeAuthorities"][0]["role"], "signing-ca", "{status}");
}

/// A new CA signs after the delay and comes first then; meanwhile a request waits. The former CA stays trusted, and the revoked
/// certificate stays revoked.
fn deleted_secret(site: &Site, token: &str, former: &pki::Certificate) {
    site.lab.kubectl(&["-n", NAMESPACE, "delete", "secret", "ovn-node-ca"]).unwrap();
    until("a second CA in the bundle", || match site.bundle()? {
        bundle if bundle.len() == 2 && bundle.contains(former) => Ok(()),
        bundle => Err(format!("{bundle:?}")),
    });
    let certificate = site.await_certificate(&site.request(token, &pem("c1", &["n1", "ovnkube-node"])));
    let bundle = until("the new CA is the first", || match site.bundle()? {
        bundle if bundle[0] != *former => Ok(bundle),
        bundle => Err(format!("{bundle:?}")),
    });
    assert!(is_accepted(&certificate, &bundle[0]) && bundle[1] == *former, "{bundle:?}");
    let revoked = pki::Revoked::parse(&site.config_map("ovn-node-ca", "revoked").unwrap());
    assert_eq!((revoked.len(), revoked.contains(certificate.fingerprint)), (1, false));
}

/// Another Node of the same name does not keep the certificates of the deleted one.
fn deleted_node(site: &Site, certificate: &pki::Certificate) {
    site.lab.kubectl(&["delete", "node", "n3"]).unwrap();
    site.lab.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"}}).to_string()).unwrap();
    until("the record of n3 is removed", || match site.config_map("ovn-chassis", "c3") {
        Ok(text) => Err(text),
        Err(_) => Ok(()),
    });
    let revoked = pki::Revoked::parse(&site.config_map("ovn-node-ca", "revoked").unwrap());
    assert_eq!(
        (revoked.len(), revoked.contains(certificate.fingerprint)),
        (2, true),
        "{}",
        site.lab.log("signer").unwrap()
    );
    site.await_event("n3", "ChassisCertificatesRevoked", &certificate.fingerprint.hex());
    let address: SocketAddr = METRICS.parse().unwrap();
    let metrics = format!("http://{address}/metrics");
    until("metrics of the record", || {
        let text =
            site.lab.machine("control").unwrap().run(&["curl", "-sS", &metrics]).map_err(|error| error.to_string())?;
        let has = [
            "ovnkube_pki_chassis 1",
            "ovnkube_pki_revoked_certificates 2",
            "ovnkube_pki_chassis_certificates_revoked_total 1",
            "ovnkube_pki_chassis_requests_pending 0",
        ];
        if has.iter().all(|line| text.contains(line)) { Ok(()) } else { Err(text) }
    });
}
