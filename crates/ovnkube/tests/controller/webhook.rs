//! A validating webhook that holds every call until it is opened.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use lab::pki::Authority;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::cluster::Cluster;

pub(crate) struct Webhook {
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: bool,
    waiting: usize,
    answered: usize,
}

impl Webhook {
    /// Registers it for writes of pods' status with the label `slow=true`.
    pub(crate) fn start(cluster: &Cluster, folder: &Path) -> Self {
        let address: SocketAddr = "127.0.0.1:9443".parse().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        let authority = Authority::create(folder, "webhook-ca").unwrap();
        let identity = authority.issue("webhook", "webhook", None, &[], &[address.ip()]).unwrap();
        let control = cluster.lab.machine("control").unwrap();
        let listener = control.with_network(|| TcpListener::bind(address).unwrap()).unwrap();
        let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&identity.certificate).unwrap()],
                PrivateKeyDer::from_pem_file(&identity.key).unwrap(),
            )
            .unwrap();
        let (gate, tls) = (Arc::new(Gate::default()), Arc::new(tls));
        let own = gate.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let (gate, tls) = (own.clone(), tls.clone());
                // An aborted call is ignored.
                std::thread::spawn(move || drop(serve(stream, tls, &gate)));
            }
        });
        let pem = std::fs::read_to_string(&authority.certificate).unwrap();
        let bundle = control.run_with_input(&["base64", "-w0"], &pem).unwrap();
        cluster.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "slow"},
            "webhooks": [{
                "name": "slow.ovnkube.test", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "timeoutSeconds": 30, "failurePolicy": "Fail", "objectSelector": {"matchLabels": {"slow": "true"}},
                "clientConfig": {"url": format!("https://{address}/"), "caBundle": bundle.trim()},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                           "resources": ["pods/status"]}],
            }],
        }));
        Self { gate }
    }

    /// How many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        self.gate.state.lock().unwrap().waiting
    }

    /// How many calls were answered so far.
    pub(crate) fn answered(&self) -> usize {
        self.gate.state.lock().unwrap().answered
    }

    /// Answers all waiting and later calls.
    pub(crate) fn open(&self) {
        self.gate.state.lock().unwrap().open = true;
        self.gate.changed.notify_all();
    }
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        let mut state = self.changed.wait_while(state, |state| !state.open).unwrap();
        state.waiting -= 1;
        state.answered += 1;
    }
}

/// Serves one call per connection.
fn serve(stream: TcpStream, tls: Arc<ServerConfig>, gate: &Gate) -> std::io::Result<()> {
    let connection = ServerConnection::new(tls).map_err(std::io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let review: Value = serde_json::from_slice(&body)?;
    gate.pass();
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true}})
    .to_string();
    let stream = reader.get_mut();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{answer}",
        answer.len()
    )?;
    stream.flush()
}
