//! The plugin with a runtime's environment and stdin, with and without an agent.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cni_shim::{MAX_MESSAGE, Outcome, run};

static FOLDERS: AtomicUsize = AtomicUsize::new(0);

struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cni-shim-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("agent.sock")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CONFIG: &str = r#"{"cniVersion":"1.0.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}"#;

fn call(command: &str, socket: &Path, timeout: Duration) -> Outcome {
    let environment =
        [("CNI_COMMAND", command), ("CNI_CONTAINERID", "c1"), ("CNI_NETNS", "/run/netns/x"), ("HOME", "/root")];
    let environment = environment.map(|(key, value)| (OsString::from(key), OsString::from(value)));
    run(environment.into_iter(), CONFIG.as_bytes(), socket, timeout)
}

/// An agent that answers one request; returns the request.
fn agent(listener: UnixListener, answer: &'static str) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        let mut part = [0; 1024];
        while !asked.ends_with(b"\"}") {
            let count = stream.read(&mut part).unwrap();
            assert_ne!(count, 0, "the plugin hung up after {:?}", String::from_utf8_lossy(&asked));
            asked.extend_from_slice(&part[..count]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(asked).unwrap()
    })
}

#[test]
fn the_agents_response_is_printed() {
    let directory = TempDir::new();
    let listener = UnixListener::bind(directory.socket()).unwrap();
    let agent = agent(listener, "HTTP/1.1 200 OK\r\novnkube-cni: 1\r\ncontent-length: 14\r\n\r\n{\"result\":\"r\"}");
    let outcome = call("ADD", &directory.socket(), Duration::from_secs(20));
    assert_eq!(outcome, Outcome { output: "{\"result\":\"r\"}".to_owned(), success: true });
    let asked = agent.join().unwrap();
    assert!(asked.starts_with("POST / HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("ovnkube-cni: 1\r\n"), "{asked}");
    assert!(asked.contains(r#""CNI_NETNS":"/run/netns/x""#), "{asked}");
    assert!(!asked.contains("HOME"), "{asked}");
}

#[test]
fn the_agents_error_is_printed_unchanged() {
    let directory = TempDir::new();
    let listener = UnixListener::bind(directory.socket()).unwrap();
    let agent = agent(listener, "HTTP/1.1 500 E\r\novnkube-cni: 1\r\ncontent-length: 11\r\n\r\n{\"code\":11}");
    let outcome = call("ADD", &directory.socket(), Duration::from_secs(20));
    // Before joining the agent, which would wait for ever without a connection.
    assert_eq!(outcome, Outcome { output: "{\"code\":11}".to_owned(), success: false });
    agent.join().unwrap();
}

#[test]
fn an_unreachable_agent_is_a_cni_error() {
    let directory = TempDir::new();
    for (command, code) in [("ADD", "\"code\":11"), ("DEL", "\"code\":11"), ("STATUS", "\"code\":50")] {
        let Outcome { output: text, success: good } = call(command, &directory.socket(), Duration::from_secs(20));
        assert!(!good && text.contains(code) && text.contains("\"cniVersion\":\"1.0.0\""), "{text}");
        assert!(text.contains("ovnkube-node pod") && text.contains("agent.sock"), "{text}");
    }
}

#[test]
fn a_slow_agent_times_out() {
    let directory = TempDir::new();
    let _listener = UnixListener::bind(directory.socket()).unwrap();
    let Outcome { output: text, success: good } = call("ADD", &directory.socket(), Duration::from_millis(50));
    assert!(!good && text.contains("\"code\":11") && text.contains("did not respond within"), "{text}");
}

/// A request of exactly this many bytes: the configuration makes up most of it, a variable the rest.
fn call_with_body_of(length: usize, socket: &Path) -> Outcome {
    // `{"env":{"CNI_ARGS":"…","CNI_COMMAND":"ADD"},"config":"…"}`
    let config = vec![b' '; (MAX_MESSAGE - 4096) / 4 * 3];
    let padding = length - config.len() / 3 * 4 - r#"{"env":{"CNI_ARGS":"","CNI_COMMAND":"ADD"},"config":""}"#.len();
    let environment = [("CNI_COMMAND".into(), "ADD".into()), ("CNI_ARGS".into(), "a".repeat(padding).into())];
    run(environment.into_iter(), config.as_slice(), socket, Duration::from_secs(20))
}

#[test]
fn a_request_of_the_largest_size_is_sent_and_a_larger_one_is_refused() {
    let directory = TempDir::new();
    let listener = UnixListener::bind(directory.socket()).unwrap();
    let agent = agent(listener, "HTTP/1.1 200 OK\r\novnkube-cni: 1\r\ncontent-length: 2\r\n\r\n{}");
    let Outcome { output, success } = call_with_body_of(MAX_MESSAGE, &directory.socket());
    assert!(success, "{output}");
    let asked = agent.join().unwrap();
    assert!(asked.contains(&format!("content-length: {MAX_MESSAGE}\r\n")), "{}", &asked[..200]);
    let Outcome { output, success } = call_with_body_of(MAX_MESSAGE + 1, &directory.socket());
    assert!(!success && output.contains("\"code\":5") && output.contains("too large"), "{output}");
}

#[test]
fn version_needs_no_agent_and_invalid_calls_are_errors() {
    let start = |command: Option<&str>| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ovn-k8s-cni-overlay"));
        program.env_clear().stdin(Stdio::null());
        if let Some(command) = command {
            program.env("CNI_COMMAND", command);
        }
        let output = program.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (good, text) = start(Some("VERSION"));
    assert!(good && text.contains("\"supportedVersions\":[\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\""), "{text}");
    for command in [None, Some("PLAY")] {
        let (good, text) = start(command);
        assert!(!good && text.contains("\"code\":4"), "{text}");
    }
}
