//! The plugin as a runtime meets it: the environment, stdin, and an agent (or none) behind the socket.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cni_shim::{Outcome, run};

static FOLDERS: AtomicUsize = AtomicUsize::new(0);

struct Folder(PathBuf);

impl Folder {
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

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CONFIG: &str = r#"{"cniVersion":"1.0.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}"#;

fn call(command: &str, socket: &Path, patience: Duration) -> Outcome {
    let environment =
        [("CNI_COMMAND", command), ("CNI_CONTAINERID", "c1"), ("CNI_NETNS", "/run/netns/x"), ("HOME", "/root")];
    let environment = environment.map(|(key, value)| (OsString::from(key), OsString::from(value)));
    run(environment.into_iter(), CONFIG.as_bytes(), socket, patience)
}

/// An agent that answers once; returns what it was asked.
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
fn the_agent_is_asked_and_its_answer_printed() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let agent = agent(listener, "HTTP/1.1 200 OK\r\novnkube-cni: 1\r\ncontent-length: 14\r\n\r\n{\"result\":\"r\"}");
    let outcome = call("ADD", &folder.socket(), Duration::from_secs(20));
    assert_eq!(outcome, Outcome { text: "{\"result\":\"r\"}".to_owned(), good: true });
    let asked = agent.join().unwrap();
    assert!(asked.starts_with("POST / HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("ovnkube-cni: 1\r\n"), "{asked}");
    assert!(asked.contains(r#""CNI_NETNS":"/run/netns/x""#), "{asked}");
    assert!(!asked.contains("HOME"), "{asked}");
}

#[test]
fn an_error_of_the_agent_is_printed_as_it_is() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let agent = agent(listener, "HTTP/1.1 500 E\r\novnkube-cni: 1\r\ncontent-length: 11\r\n\r\n{\"code\":11}");
    let outcome = call("ADD", &folder.socket(), Duration::from_secs(20));
    // Before the agent is waited for: it waits for ever if nobody came.
    assert_eq!(outcome, Outcome { text: "{\"code\":11}".to_owned(), good: false });
    agent.join().unwrap();
}

#[test]
fn an_absent_agent_is_told_in_the_words_of_cni() {
    let folder = Folder::new();
    for (command, code) in [("ADD", "\"code\":11"), ("DEL", "\"code\":11"), ("STATUS", "\"code\":50")] {
        let Outcome { text, good } = call(command, &folder.socket(), Duration::from_secs(20));
        assert!(!good && text.contains(code) && text.contains("\"cniVersion\":\"1.0.0\""), "{text}");
        assert!(text.contains("ovnkube-node pod") && text.contains("agent.sock"), "{text}");
    }
}

#[test]
fn a_slow_agent_is_given_up() {
    let folder = Folder::new();
    let _listener = UnixListener::bind(folder.socket()).unwrap();
    let Outcome { text, good } = call("ADD", &folder.socket(), Duration::from_millis(50));
    assert!(!good && text.contains("\"code\":11") && text.contains("did not answer within"), "{text}");
}

#[test]
fn the_program_says_its_versions_without_an_agent_and_what_is_wrong_with_its_call() {
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
