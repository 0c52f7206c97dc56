//! Certificates of nodes: as many requests at once as there are nodes; then a rotation of their CA, after which all ask again, while
//! each has a session with the listener for nodes.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use bench::{Figure, Goal};
use kubernetes::Api;
use ovsdb::client::TlsFiles;
use pki::ChassisKey;
use serde_json::{Value, json};

use crate::listener::Listener;
use crate::rotation;
use crate::sessions::Sessions;
use crate::site::{DELAY, Site, TIMEOUT, get};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const PERIOD: Duration = Duration::from_millis(100);

/// Nodes, each with a certificate in files.
pub(crate) struct Nodes {
    pub(crate) count: usize,
    /// Of an administrator, who stands for the agents.
    token: String,
    directory: PathBuf,
    /// Seconds from the first request until all nodes had their certificates.
    seconds: f64,
    /// CPU of signer and API server meanwhile.
    cpu: [f64; 2],
}

impl Nodes {
    /// Creates Node objects, and has the signer issue a certificate for each.
    pub(crate) fn create(site: &Site, count: usize) -> Result<Self> {
        eprintln!("{count} nodes request certificates");
        site.lab.kubectl(&["-n", "default", "create", "serviceaccount", "bench"])?;
        let binding = ["create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin"];
        site.lab.kubectl(&[&binding[..], &["--serviceaccount=default:bench"]].concat())?;
        let token = site.lab.kubectl(&["-n", "default", "create", "token", "bench", "--duration=1h"])?;
        site.inside(async |api| {
            for number in 0..count {
                let metadata = json!({ "name": format!("n{number}"),
                    "annotations": { "k8s.ovn.org/node-chassis-id": format!("chassis-{number}") } });
                let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
                api.post("/api/v1/nodes", node.to_string().into_bytes()).await?;
            }
            Ok(())
        })?;
        let directory = site.directory().join("nodes");
        std::fs::create_dir_all(&directory)?;
        let mut nodes = Self { count, token: token.trim().to_owned(), directory, seconds: 0.0, cpu: [0.0; 2] };
        (nodes.seconds, nodes.cpu) = nodes.request(site, "first")?;
        Ok(nodes)
    }

    pub(crate) fn bundle(&self) -> PathBuf {
        self.directory.join("ca-bundle.crt")
    }

    /// The files of a node's session with the listener.
    pub(crate) fn tls(&self, site: &Site, number: usize) -> TlsFiles {
        TlsFiles {
            certificate: self.directory.join(format!("{number}.crt")),
            private_key: self.directory.join(format!("{number}.key")),
            ..site.tls()
        }
    }

    /// All nodes request a certificate; returns when each has one in its files: seconds, and CPU of signer and API server.
    fn request(&self, site: &Site, round: &str) -> Result<(f64, [f64; 2])> {
        let keys: Vec<ChassisKey> = (0..self.count)
            .map(|number| ChassisKey::create(&format!("chassis-{number}"), &format!("n{number}")))
            .collect::<Result<_, _>>()?;
        let cpu = || -> Result<[f64; 2]> { Ok([site.cpu("signer")?, site.cpu("kube-apiserver")?]) };
        let server = site.inside(async |api| Ok(api.server().trim_end_matches('/').to_owned()))?;
        let calls = self.calls(&server, round, &keys);
        let (before, start) = (cpu()?, Instant::now());
        site.control()?.run_with_input(&["curl", "-K", "-"], &calls)?;
        let answers = site.inside(async |api| self.answers(&api, round).await)?;
        let (seconds, after) = (start.elapsed().as_secs_f64(), cpu()?);
        let now = std::time::SystemTime::now().try_into()?;
        for (number, (key, answer)) in keys.iter().zip(&answers).enumerate() {
            let own = key.accept(answer, now)?;
            std::fs::write(self.directory.join(format!("{number}.crt")), &own.chain)?;
            std::fs::write(self.directory.join(format!("{number}.key")), own.key.pem())?;
        }
        Ok((seconds, [after[0] - before[0], after[1] - before[1]]))
    }

    /// A configuration of curl that creates all requests as the agents would.
    fn calls(&self, server: &str, round: &str, keys: &[ChassisKey]) -> String {
        let mut calls = String::new();
        for (number, key) in keys.iter().enumerate() {
            let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": {"name": format!("{round}-{number}")},
                "spec": {"signerName": "k8s.ovn.org/chassis", "request": BASE64.encode(key.pem()),
                    "usages": ["digital signature", "client auth", "server auth"]}});
            let data = body.to_string().replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(
                calls,
                "url = \"{server}{REQUESTS}\"\ninsecure\nsilent\nshow-error\nfail\noutput = \"/dev/null\"\n\
                 header = \"Authorization: Bearer {}\"\nheader = \"Content-Type: application/json\"\n\
                 header = \"Impersonate-User: system:serviceaccount:ovn-kubernetes:ovnkube-node\"\n\
                 header = \"Impersonate-Group: system:masters\"\n\
                 header = \"Impersonate-Extra-authentication.kubernetes.io%2Fnode-name: n{number}\"\n\
                 data = \"{data}\"\n{}",
                self.token,
                if number + 1 < keys.len() { "next\n" } else { "" }
            );
        }
        calls
    }

    /// The certificates of a round, by node.
    async fn answers(&self, api: &Api, round: &str) -> Result<Vec<Vec<u8>>> {
        let start = Instant::now();
        loop {
            let list: Value = serde_json::from_slice(&api.get(REQUESTS).await?)?;
            let mut answers = vec![Vec::new(); self.count];
            let mut refused = Vec::new();
            for request in list["items"].as_array().into_iter().flatten() {
                let name = request["metadata"]["name"].as_str().unwrap_or_default();
                let Some(number) = name.strip_prefix(&format!("{round}-")) else { continue };
                if let Some(certificate) = request["status"]["certificate"].as_str() {
                    let place = answers.get_mut(number.parse::<usize>()?).context("an unknown request")?;
                    *place = BASE64.decode(certificate)?;
                } else if request["status"]["conditions"][0]["type"] == "Denied" {
                    refused.push(request["status"]["conditions"][0]["message"].to_string());
                }
            }
            if answers.iter().all(|answer| !answer.is_empty()) {
                return Ok(answers);
            }
            if start.elapsed() > TIMEOUT || !refused.is_empty() {
                let missing = answers.iter().filter(|answer| answer.is_empty()).count();
                bail!("{missing} nodes have no certificate after {TIMEOUT:?}; refused: {:?}", refused.first());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Copies the trusted CAs of nodes to a file, as kubelet does; returns them.
    pub(crate) async fn copy_bundle(&self, api: &Api) -> Result<String> {
        let object = get(api, "configmaps/ovn-node-ca").await?;
        let bundle = object["data"]["ca-bundle.crt"].as_str().context("no CA of nodes yet")?.to_owned();
        let draft = self.directory.join("draft");
        std::fs::write(&draft, &bundle)?;
        std::fs::rename(&draft, self.bundle())?;
        Ok(bundle)
    }
}

/// The first certificate of a bundle.
fn first(bundle: &str) -> &str {
    bundle.split_inclusive("-----END CERTIFICATE-----").next().unwrap_or_default()
}

pub(crate) fn figures(site: &Site, nodes: &Nodes, figures: &mut Vec<Figure>) -> Result<()> {
    let count = nodes.count;
    eprintln!("a rotation of the nodes' CA under {count} sessions");
    let mut push = |what: String, value: f64, unit: &str| figures.push(Figure::new(what, value, unit));
    push(format!("{count} nodes request a certificate: until all have it"), nodes.seconds, "s");
    for (process, used) in ["ovnkube pki serve", "kube-apiserver"].iter().zip(nodes.cpu) {
        push(format!("{count} nodes request a certificate: CPU of {process}"), used, "s");
    }
    let listener = Listener::start(site, nodes)?;
    let label = format!("rotation of the nodes' CA and {count} nodes' certificates");
    let clients = |nodes: &Nodes| (0..count).map(|number| listener.node(site, nodes, number)).collect::<Result<_>>();
    // The sessions' runtime must go on while all nodes ask again.
    let (begin, began) = std::sync::mpsc::channel();
    let (end, ended) = tokio::sync::oneshot::channel();
    let (requested, rotated) = std::thread::scope(|scope| {
        let requests = scope.spawn(move || {
            began.recv().context("the CA was not rotated")?;
            let requested = nodes.request(site, "second");
            // If the other side has failed, it says why.
            let _ = end.send(());
            requested
        });
        let rotated = site.inside(async |api| {
            let sessions = Sessions::of(clients(nodes)?).await?;
            let before = nodes.copy_bundle(&api).await?;
            let start = Instant::now();
            rotation::request(&api, "ovn-node-ca").await?;
            while first(&nodes.copy_bundle(&api).await?) == first(&before) {
                if start.elapsed() > TIMEOUT {
                    bail!("no other CA of nodes signs after {TIMEOUT:?}");
                }
                tokio::time::sleep(PERIOD).await;
            }
            let waited = start.elapsed().as_secs_f64();
            begin.send(())?;
            drop(begin);
            ended.await?;
            let again = Sessions::of(clients(nodes)?).await?;
            Ok((waited, sessions.dropped(), again.dropped()))
        });
        (requests.join(), rotated)
    });
    let (waited, dropped, failed) = rotated?;
    let (seconds, used) = requested.map_err(|_| anyhow::anyhow!("the thread of the requests ended early"))??;
    let mut goal = |what: &str, value: u64| {
        figures.push(Figure::new(format!("{label}: {what}"), value as f64, "sessions").with_goal(Goal::AtMost(0.0)));
    };
    goal("sessions dropped", dropped);
    goal("as many new sessions with the new certificates, failures", failed);
    let mut push = |what: String, value: f64| figures.push(Figure::new(format!("{label}: {what}"), value, "s"));
    push(format!("until the new CA signs, with a distribution delay of {} s", DELAY.as_secs()), waited);
    push("then until all nodes have a new certificate".into(), seconds);
    for (process, used) in ["ovnkube pki serve", "kube-apiserver"].iter().zip(used) {
        push(format!("CPU of {process} for the certificates"), used);
    }
    Ok(())
}
