//! A child process that runs a role, and a minimal HTTP client.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// Limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the child a role; the value is its listen address.
pub(crate) const ADDRESS: &str = "TELEMETRY_TEST_ADDRESS";
/// Sets the child's grace period.
pub(crate) const GRACE_MILLIS: &str = "TELEMETRY_TEST_GRACE_MILLIS";
/// Makes the child log in human-readable format.
pub(crate) const HUMAN: &str = "TELEMETRY_TEST_HUMAN";

pub(crate) struct Role {
    child: Child,
    stderr: BufReader<ChildStderr>,
    watchdog: Option<Watchdog>,
}

/// Kills a hung role, so that reads from it end and the test fails.
struct Watchdog {
    leash: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    fn of(role: Pid) -> Self {
        let (leash, gone) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            if gone.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the role is killed: it was not done within {PATIENCE:?}");
                let _ = kill(role, Signal::SIGKILL);
            }
        });
        Self { leash, thread }
    }

    /// It kills nothing after this returns.
    fn stop(self) {
        drop(self.leash);
        let _ = self.thread.join();
    }
}

impl Role {
    pub(crate) fn start(environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test binary"))
            .args(["--exact", "role_process", "--ignored", "--nocapture"])
            .env(ADDRESS, "127.0.0.1:0")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a child process");
        let stderr = BufReader::new(child.stderr.take().expect("its stderr"));
        let mut role = Self { child, stderr, watchdog: None };
        role.watchdog = Some(Watchdog::of(role.id()));
        role
    }

    fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// The log lines up to and including the first that contains `text`.
    pub(crate) fn lines_until(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let length = self.stderr.read_line(&mut line).expect("log lines in UTF-8");
            assert!(length > 0, "the role ended without {text:?}: {lines:#?}");
            let found = line.contains(text);
            lines.push(line.trim_end().to_owned());
            if found {
                return lines;
            }
        }
    }

    pub(crate) fn line_with(&mut self, text: &str) -> String {
        self.lines_until(text).pop().expect("at least one line")
    }

    /// The `started` log line as JSON.
    pub(crate) fn started(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.line_with("started")).expect("a line of JSON")
    }

    pub(crate) fn address(&mut self) -> String {
        self.started()["address"].as_str().expect("an address").to_owned()
    }

    pub(crate) fn command(&mut self, command: &str) {
        let stdin = self.child.stdin.as_mut().expect("its stdin");
        writeln!(stdin, "{command}").expect("the role reads commands");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.id(), signal).expect("our own child");
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        // Do not reap the child before the watchdog ends: its PID could be reused.
        waitid(Id::Pid(self.id()), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).expect("our own child");
        self.watchdog.take().expect("this is asked once").stop();
        self.child.wait().expect("our own child").code()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // A failed test leaves no process behind.
        let _ = self.child.kill();
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.stop();
        }
        let _ = self.child.wait();
    }
}

/// A request whose body has not been sent completely.
pub(crate) struct Open {
    stream: TcpStream,
    last_byte: String,
}

impl Open {
    pub(crate) fn put(address: &str, path: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(address).expect("the role listens");
        let (first, last) = body.split_at(body.len() - 1);
        // With `Expect` the interim response shows that the handler has the request.
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nHost: role\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            body.len(),
        )
        .expect("the role reads");
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).expect("an interim response");
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(first.as_bytes()).expect("the role reads");
        Self { stream, last_byte: last.to_owned() }
    }

    pub(crate) fn finish(mut self) -> (u16, String) {
        self.stream.write_all(self.last_byte.as_bytes()).expect("the role still reads");
        answer(self.stream)
    }
}

pub(crate) fn request(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the role listens");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: role\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("the role reads");
    answer(stream)
}

fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response in UTF-8");
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let (_, body) = text.split_once("\r\n\r\n").expect("headers and a body");
    (status.expect("a status"), body.to_owned())
}
