//! Fake servers that lag, belong to another cluster, or send an update before the monitor reply. Each test was
//! shown to fail without its check.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ovsdb::client::{Client, Config, TableMonitor};
use serde_json::{Value, json};

use crate::common::{TIMEOUT, await_status, for_each_message};

const ROW: &str = "36bef046-7da7-43a5-905a-c17899216fcb";

/// The state that a fake server reports.
#[derive(Clone)]
struct Role {
    cluster: &'static str,
    index: i64,
    /// The name of its only row.
    name: &'static str,
    /// Whether its row is sent as an update before the then empty monitor reply.
    early: bool,
}

struct Impostor {
    port: u16,
    closed: Arc<AtomicBool>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Impostor {
    fn start(role: Role) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (closed, clients) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (shut, all) = (closed.clone(), clients.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shut.load(Ordering::SeqCst) {
                    continue;
                }
                all.lock().unwrap().push(client.try_clone().unwrap());
                let role = role.clone();
                std::thread::spawn(move || serve(client, &role));
            }
        });
        Self { port, closed, clients }
    }

    /// Closes all connections and the listener.
    fn die(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for client in self.clients.lock().unwrap().drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

fn serve(mut client: TcpStream, role: &Role) {
    let requests = client.try_clone().unwrap();
    for_each_message(requests, |request| {
        let request: Value = serde_json::from_slice(&request).unwrap();
        answers(&request, role).iter().all(|message| client.write_all(message.to_string().as_bytes()).is_ok())
    });
}

fn answers(request: &Value, role: &Role) -> Vec<Value> {
    let row = |what: &str| json!({"T": {ROW: {what: {"name": role.name}}}});
    let transaction = "00000000-0000-0000-0000-000000000007";
    let mut messages = Vec::new();
    let result = match request["method"].as_str().unwrap_or_default() {
        // `_Server`: its state in the cluster.
        "monitor_cond" => json!({"Database": {ROW: {"initial": {
            "name": "Fake", "model": "clustered", "connected": true, "leader": true,
            "cid": ["uuid", role.cluster], "index": role.index}}}}),
        "get_schema" => {
            json!({"name": "Fake", "version": "1.0.0", "tables": {"T": {"columns": {"name": {"type": "string"}}}}})
        }
        "monitor_cond_since" if role.early => {
            let params = json!(["replica", transaction, row("insert")]);
            messages.push(json!({"id": null, "method": "update3", "params": params}));
            json!([false, transaction, {}])
        }
        "monitor_cond_since" => json!([false, transaction, row("initial")]),
        _ => json!({}),
    };
    messages.push(json!({"id": request["id"], "error": null, "result": result}));
    messages
}

const OURS: &str = "11111111-1111-1111-1111-111111111111";
const OTHERS: &str = "22222222-2222-2222-2222-222222222222";

fn start(servers: &[&Impostor]) -> Client {
    let remotes = servers.iter().map(|server| format!("tcp:127.0.0.1:{}", server.port).parse().unwrap()).collect();
    let mut config = Config::new(remotes, "Fake").monitor(TableMonitor::new("T"));
    config.connect_timeout = std::time::Duration::from_secs(5);
    Client::start(config)
}

fn names(client: &Client) -> Vec<String> {
    client.snapshot().table("T").unwrap().iter().filter_map(|row| row.text("name")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_or_foreign_server_is_refused() {
    for (role, word) in [
        (Role { cluster: OURS, index: 5, name: "old", early: false }, "behind"),
        (Role { cluster: OTHERS, index: 20, name: "foreign", early: false }, "another cluster"),
    ] {
        let good = Impostor::start(Role { cluster: OURS, index: 10, name: "new", early: false });
        let bad = Impostor::start(role);
        let client = start(&[&good, &bad]);
        client.connected(TIMEOUT).await.unwrap();
        assert_eq!(names(&client), ["new"]);
        good.die();
        await_status(&client, |status| status.last_error.as_ref().is_some_and(|error| error.contains(word))).await;
        assert_eq!(names(&client), ["new"], "{word}");
        assert_eq!(client.status().borrow().sessions, 1, "{word}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_before_the_monitor_reply_is_kept() {
    let server = Impostor::start(Role { cluster: OURS, index: 1, name: "early", early: true });
    let client = start(&[&server]);
    client.connected(TIMEOUT).await.unwrap();
    assert_eq!(names(&client), ["early"]);
}
