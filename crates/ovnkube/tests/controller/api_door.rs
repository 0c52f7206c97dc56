//! A door between controllers and the API server, behind which the watch of one kind can be kept waiting: everything
//! else goes on, so that events of different kinds arrive in an order that one chooses. Or everything is kept waiting.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use lab::{Machine, Program};

use crate::cluster::{Cluster, PATIENCE};

const DOOR: &str = "127.0.0.1:8002";
const PROXY: &str = "127.0.0.1:8001";

#[derive(Default)]
struct State {
    held: Mutex<bool>,
    moved: Condvar,
}

pub(crate) struct ApiDoor {
    state: Arc<State>,
    /// What the controller is told instead of the lab's own.
    pub(crate) kubeconfig: PathBuf,
}

impl ApiDoor {
    /// An open door that knows the watch of a kind by the beginning of its request, such as `/api/v1/namespaces?watch=1`.
    pub(crate) fn open(cluster: &Cluster, watch: &str) -> Self {
        Self::open_for(cluster, format!("GET {watch}"))
    }

    /// An open door behind which every answer can be kept waiting.
    pub(crate) fn open_for_all(cluster: &Cluster) -> Self {
        Self::open_for(cluster, String::new())
    }

    fn open_for(cluster: &Cluster, request: String) -> Self {
        // Someone has to speak TLS to the server.
        let proxy = Program::new("api-proxy", "kubectl").arguments(["proxy", "--port=8001"]);
        cluster.lab.run(&proxy.ready_when_logged("Starting to serve")).unwrap();
        let control = cluster.lab.machine("control").unwrap();
        let listener = control.with_network(|| TcpListener::bind(DOOR).unwrap()).unwrap();
        let state = Arc::new(State::default());
        let door = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = control.connect(PROXY.parse().unwrap(), PATIENCE) {
                    join(&door, &request, &client, &server);
                }
            }
        });
        let lab = cluster.lab.record().endpoints.machine_kubeconfig.unwrap();
        let kubeconfig = lab.with_file_name("door.kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: door\n\
             contexts: [{{name: door, context: {{cluster: door, user: door}}}}]\n\
             clusters: [{{name: door, cluster: {{server: \"http://{DOOR}\"}}}}]\n\
             users: [{{name: door, user: {{}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        Self { state, kubeconfig }
    }

    /// What the watch says from now on waits.
    pub(crate) fn hold(&self) {
        *self.state.held.lock().unwrap() = true;
    }

    /// What was kept waiting goes on, and so does all that follows.
    pub(crate) fn release(&self) {
        *self.state.held.lock().unwrap() = false;
        self.state.moved.notify_all();
    }
}

fn join(state: &Arc<State>, request: &str, client: &TcpStream, server: &TcpStream) {
    let ends = || [client.try_clone().unwrap(), server.try_clone().unwrap()];
    let watches = Arc::new(AtomicBool::new(false));
    let ([mut from, mut to], [mut back, mut answers]) = (ends(), ends());
    let (request, asks) = (request.to_owned(), watches.clone());
    std::thread::spawn(move || {
        let mut chunk = [0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut chunk) {
            // A connection serves one request after the other, each in one piece.
            let text = String::from_utf8_lossy(&chunk[..read]);
            asks.store(text.starts_with(&request), Ordering::SeqCst);
            if to.write_all(&chunk[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let door = state.clone();
    std::thread::spawn(move || {
        let mut chunk = [0; 1 << 16];
        while let Ok(read @ 1..) = answers.read(&mut chunk) {
            if watches.load(Ordering::SeqCst) {
                let held = door.held.lock().unwrap();
                drop(door.moved.wait_while(held, |held| *held).unwrap());
            }
            if back.write_all(&chunk[..read]).is_err() {
                break;
            }
        }
        let _ = back.shutdown(Shutdown::Both);
    });
}

/// etcd itself, where what no API server would take can be written.
pub(crate) struct Etcd(Machine);

impl Etcd {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self(cluster.lab.machine("control").unwrap())
    }

    /// Stores an object as it is, as an older server, or one of another version, may have done.
    pub(crate) fn put(&self, key: &str, object: &serde_json::Value) {
        let encoded = |text: &str| self.0.run_with_input(&["base64", "-w0"], text).unwrap().trim().to_owned();
        let (key, value) = (encoded(key), encoded(&object.to_string()));
        let body = serde_json::json!({"key": key, "value": value}).to_string();
        let mut stream = self.0.connect("127.0.0.1:2379".parse().unwrap(), PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = "POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Type: application/json";
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
