//! A proxy between controllers and the API server that can hold back the responses of one watch, so that a test chooses
//! the order in which events of different kinds arrive; or hold back every response.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use lab::{Machine, Program};

use crate::cluster::{Cluster, TIMEOUT};

const LISTEN: &str = "127.0.0.1:8002";
const KUBECTL_PROXY: &str = "127.0.0.1:8001";

#[derive(Default)]
struct State {
    held: Mutex<bool>,
    changed: Condvar,
}

pub(crate) struct ApiProxy {
    state: Arc<State>,
    /// A kubeconfig that leads to this proxy.
    pub(crate) kubeconfig: PathBuf,
}

impl ApiProxy {
    /// Holds back one watch, identified by the start of its request path, such as `/api/v1/namespaces?watch=1`.
    pub(crate) fn start(cluster: &Cluster, watch: &str) -> Self {
        Self::start_for(cluster, format!("GET {watch}"))
    }

    /// Holds back every response.
    pub(crate) fn start_for_all(cluster: &Cluster) -> Self {
        Self::start_for(cluster, String::new())
    }

    fn start_for(cluster: &Cluster, request: String) -> Self {
        // `kubectl proxy` speaks TLS to the server.
        let proxy = Program::new("api-proxy", "kubectl").arguments(["proxy", "--port=8001"]);
        cluster.lab.run(&proxy.ready_when_logged("Starting to serve")).unwrap();
        let control = cluster.lab.machine("control").unwrap();
        let listener = control.with_network(|| TcpListener::bind(LISTEN).unwrap()).unwrap();
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = control.connect(KUBECTL_PROXY.parse().unwrap(), TIMEOUT) {
                    relay(&shared, &request, &client, &server);
                }
            }
        });
        let lab = cluster.lab.record().endpoints.machine_kubeconfig.unwrap();
        let kubeconfig = lab.with_file_name("held.kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: held\n\
             contexts: [{{name: held, context: {{cluster: held, user: held}}}}]\n\
             clusters: [{{name: held, cluster: {{server: \"http://{LISTEN}\"}}}}]\n\
             users: [{{name: held, user: {{}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        Self { state, kubeconfig }
    }

    /// Holds back responses from now on.
    pub(crate) fn hold(&self) {
        *self.state.held.lock().unwrap() = true;
    }

    /// Delivers the held responses and all later ones.
    pub(crate) fn release(&self) {
        *self.state.held.lock().unwrap() = false;
        self.state.changed.notify_all();
    }
}

fn relay(state: &Arc<State>, request: &str, client: &TcpStream, server: &TcpStream) {
    let ends = || [client.try_clone().unwrap(), server.try_clone().unwrap()];
    let matches_request = Arc::new(AtomicBool::new(false));
    let ([mut from, mut to], [mut back, mut answers]) = (ends(), ends());
    let (request, is_match) = (request.to_owned(), matches_request.clone());
    std::thread::spawn(move || {
        let mut chunk = [0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut chunk) {
            // Requests on a connection are sequential, and each arrives in one read.
            let text = String::from_utf8_lossy(&chunk[..read]);
            is_match.store(text.starts_with(&request), Ordering::SeqCst);
            if to.write_all(&chunk[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let shared = state.clone();
    std::thread::spawn(move || {
        let mut chunk = [0; 1 << 16];
        while let Ok(read @ 1..) = answers.read(&mut chunk) {
            if matches_request.load(Ordering::SeqCst) {
                let held = shared.held.lock().unwrap();
                drop(shared.changed.wait_while(held, |held| *held).unwrap());
            }
            if back.write_all(&chunk[..read]).is_err() {
                break;
            }
        }
        let _ = back.shutdown(Shutdown::Both);
    });
}

/// Direct access to etcd, for objects that the API server would reject.
pub(crate) struct Etcd(Machine);

impl Etcd {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self(cluster.lab.machine("control").unwrap())
    }

    /// Stores an object unvalidated, as an older API server may have done.
    pub(crate) fn put(&self, key: &str, object: &serde_json::Value) {
        let encoded = |text: &str| self.0.run_with_input(&["base64", "-w0"], text).unwrap().trim().to_owned();
        let (key, value) = (encoded(key), encoded(&object.to_string()));
        let body = serde_json::json!({"key": key, "value": value}).to_string();
        let mut stream = self.0.connect("127.0.0.1:2379".parse().unwrap(), TIMEOUT).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = "POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Type: application/json";
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
