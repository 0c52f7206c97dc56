//! The bare client against a fake OVSDB server on a unix socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

const ROW: &str = "36bef046-7da7-43a5-905a-c17899216fcb";

/// A server for one connection. It passes each request to `answer`, sends the reply a few bytes at a
/// time, and returns all requests at the end.
fn server(name: &str, answer: impl Fn(&Value) -> Option<String> + Send + 'static) -> (PathBuf, JoinHandle<Vec<Value>>) {
    let path = std::env::temp_dir().join(format!("bare-{name}-{}.sock", std::process::id()));
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let handle = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut requests = Vec::new();
        let reader = stream.try_clone().expect("a second handle");
        for request in serde_json::Deserializer::from_reader(unbuffered(reader)).into_iter::<Value>() {
            let Ok(request) = request else { break };
            let answer = answer(&request);
            requests.push(request);
            let Some(answer) = answer else { break };
            for piece in answer.as_bytes().chunks(7) {
                if stream.write_all(piece).is_err() {
                    return requests;
                }
            }
        }
        requests
    });
    (path, handle)
}

/// Reads one byte at a time, so that the deserializer does not wait for more than the message.
fn unbuffered(stream: UnixStream) -> impl Read {
    struct Bytewise(UnixStream);
    impl Read for Bytewise {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let one = buffer.len().min(1);
            self.0.read(&mut buffer[..one])
        }
    }
    Bytewise(stream)
}

/// Runs the client; returns whether it succeeds, and its output.
fn bare(arguments: &[&str], socket: &Path) -> (bool, String) {
    let remote = format!("unix:{}", socket.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_bare-ovsdb"));
    let done = command.args(arguments).args(["--remote", &remote, "--timeout", "30"]).output().expect("it runs");
    let _ = fs::remove_file(socket);
    (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).expect("text"))
}

/// The reply for a successful transaction.
fn done(request: &Value) -> String {
    let operations = request["params"].as_array().expect("params").iter().skip(1);
    let results = operations.map(|operation| match operation["op"].as_str() {
        Some("insert") => json!({"uuid": ["uuid", ROW]}),
        _ => json!({"count": 1}),
    });
    json!({"id": request["id"], "result": results.collect::<Vec<_>>(), "error": null}).to_string()
}

#[test]
fn write_creates_a_switch_then_its_ports() {
    let (socket, server) = server("write", |request| Some(done(request)));
    let (ok, said) = bare(&["write", "--rows", "5", "--batch", "2", "--switch", "sw", "--delete"], &socket);
    assert!(ok, "{said}");
    let report: Value = serde_json::from_str(&said).expect("one line of JSON");
    assert_eq!((&report["mode"], &report["rows"], &report["batches"]), (&json!("write"), &json!(5), &json!(3)));
    assert!(report["rows_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{said}");

    let requests = server.join().expect("the server ends");
    assert_eq!(requests.len(), 5, "switch, three batches, deletion");
    assert!(requests.iter().all(|request| request["params"][0] == "OVN_Northbound"));
    assert_eq!(requests[0]["params"][1]["row"]["name"], "sw");
    let batch = requests[1]["params"].as_array().expect("params");
    assert_eq!(batch.len(), 1 + 2 + 1);
    assert_eq!(batch[1]["row"]["addresses"], "0a:58:0a:00:00:03 10.0.0.3");
    let options =
        json!(["map", [["iface-id-ver", "00000000-0000-4000-8000-000000000000"], ["requested-chassis", "sw"]]]);
    assert_eq!(batch[1]["row"]["options"], options);
    assert_eq!(batch[3]["where"], json!([["_uuid", "==", ["uuid", ROW]]]));
    let ports = json!(["set", [["named-uuid", "p0"], ["named-uuid", "p1"]]]);
    assert_eq!(batch[3]["mutations"], json!([["ports", "insert", ports]]));
    let bytes: usize = requests[1..4].iter().map(|request| request.to_string().len()).sum();
    assert_eq!(report["bytes"], json!(bytes), "only the batches are counted");
    assert_eq!(requests[4]["params"][1]["op"], "delete");
}

#[test]
fn an_error_in_any_operation_ends_the_run() {
    let (socket, server) = server("error", |request| {
        let refused = json!({"id": request["id"], "result": [{}, {"error": "constraint violation"}], "error": null});
        Some(if request["id"] == 2 { refused.to_string() } else { done(request) })
    });
    let (ok, said) = bare(&["write", "--rows", "9", "--batch", "3"], &socket);
    assert!(!ok && said.contains("refused a transaction: {\"error\":\"constraint violation\""), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(server.join().expect("the server ends").len(), 3, "nothing is sent after the error");
}

#[test]
fn read_counts_rows_and_bytes_and_answers_echo() {
    let rows = |count: usize| -> Value {
        let row = |n: usize| (format!("u{n}"), json!({"new": {"name": format!("a }}\" {n}"), "ports": ["set", []]}}));
        Value::Object((0..count).map(row).collect())
    };
    let reply =
        json!({"id": 1, "result": {"Logical_Switch": rows(1), "Logical_Switch_Port": rows(400)}, "error": null});
    let reply = reply.to_string();
    let length = reply.len();
    let (socket, server) = server("read", move |request| match request["method"].as_str() {
        Some("monitor") => Some(r#"{"id":"echo","method":"echo","params":[]}"#.to_owned()),
        _ => Some(reply.clone()),
    });
    let (ok, said) = bare(&["read"], &socket);
    assert!(ok, "{said}");
    let report: Value = serde_json::from_str(&said).expect("one line of JSON");
    assert_eq!(report["mode"], "read");
    assert_eq!((&report["rows"], &report["bytes"]), (&json!(401), &json!(length)));

    let requests = server.join().expect("the server ends");
    assert_eq!(requests[0]["params"][2], json!({"Logical_Switch": {}, "Logical_Switch_Port": {}}));
    assert_eq!(requests[1], json!({"id": "echo", "result": [], "error": null}));
}

#[test]
fn a_conditional_read_requests_columns_and_counts_nested_rows() {
    let (socket, server) = server("since", |request| {
        let tables = json!({"A": {"u1": {"initial": {"x": ["set", []]}}, "u2": {"initial": {}}}});
        Some(json!({"id": request["id"], "result": [false, ROW, tables], "error": null}).to_string())
    });
    let (ok, said) = bare(&["read", "--method", "monitor_cond_since", "--tables", "A:x+y"], &socket);
    assert!(ok, "{said}");
    let report: Value = serde_json::from_str(&said).expect("one line of JSON");
    assert_eq!(report["rows"], json!(2));
    let requests = server.join().expect("the server ends");
    assert_eq!(requests[0]["method"], "monitor_cond_since");
    assert_eq!(requests[0]["params"][2], json!({"A": [{"columns": ["x", "y"]}]}));
    assert_eq!(requests[0]["params"][3], json!("00000000-0000-0000-0000-000000000000"));
}

#[test]
fn a_rejected_monitor_and_a_closed_connection_are_reported() {
    let (socket, server) = server("refuse", |request| {
        Some(json!({"id": request["id"], "result": null, "error": {"error": "unknown database"}}).to_string())
    });
    let (ok, said) = bare(&["read", "--database", "Nowhere"], &socket);
    assert!(!ok && said.contains("refused the monitor") && said.contains("unknown database"), "{said}");
    server.join().expect("the server ends");

    let (socket, server) = self::server("hang-up", |_| None);
    let (ok, said) = bare(&["read"], &socket);
    assert!(!ok && said.contains("closed the connection"), "{said}");
    server.join().expect("the server ends");

    let (ok, said) = bare(&["read"], Path::new("/nowhere/nb.sock"));
    assert!(!ok && said.contains("cannot connect to unix:/nowhere/nb.sock"), "{said}");
}

/// A reference client must not use the code that it is compared with.
#[test]
fn the_bare_client_uses_only_the_standard_library() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/bare-ovsdb");
    for entry in fs::read_dir(directory).expect("the sources") {
        let path = entry.expect("a file").path();
        let source = fs::read_to_string(&path).expect("text");
        for line in source.lines().map(str::trim).filter(|line| line.starts_with("use ")) {
            let own = ["use std::", "use crate::", "use super::", "use options::"]
                .iter()
                .any(|start| line.starts_with(start));
            assert!(own, "{}: {line}", path.display());
        }
        for foreign in ["bench::", "anyhow::", "serde", "sha2::", "thiserror"] {
            assert!(!source.contains(foreign), "{} uses {foreign}", path.display());
        }
    }
}
