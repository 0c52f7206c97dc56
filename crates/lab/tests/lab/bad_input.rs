//! Invalid input and a broken environment: one clear line each, with the remedy.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::TIMEOUT;

/// A directory that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(purpose: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ovnkube-lab-{}-{purpose}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lab"))
}

/// The line on stderr of a command that failed.
fn error_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("lab: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    lines[0].to_owned()
}

fn require(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "{word:?} is missing in: {line}");
    }
}

#[test]
fn a_missing_tool_is_reported_with_its_remedy() {
    let scratch = Scratch::new("tool");
    let output =
        lab().arg("prepare").env("PATH", scratch.path()).env("OVNKUBE_LAB_CACHE", scratch.path()).output().unwrap();
    require(&error_line(&output), &["go is missing", "apt-get install golang-go"]);
    let output = lab()
        .args(["up", "--no-kubernetes", "--name", "no-tool"])
        .env("PATH", scratch.path())
        .env("OVNKUBE_LAB_CACHE", scratch.path())
        .output()
        .unwrap();
    require(&error_line(&output), &["mmdebstrap is missing", "apt-get install mmdebstrap"]);
}

#[test]
fn an_unreachable_mirror_is_reported_in_one_line() {
    let scratch = Scratch::new("registry");
    // Port 9 of loopback: nothing listens there, and nothing leaves this host.
    let output = lab()
        .args(["up", "--no-kubernetes", "--name", "no-mirror"])
        .env("http_proxy", "http://127.0.0.1:9")
        .env("https_proxy", "http://127.0.0.1:9")
        .env("OVNKUBE_LAB_CACHE", scratch.path())
        .output()
        .unwrap();
    require(&error_line(&output), &["cannot fetch the packages of the node image", "check the network"]);
    let output = lab()
        .arg("prepare")
        .env("GOPROXY", "http://127.0.0.1:9")
        .env("GOMODCACHE", scratch.path().join("modules"))
        .env("GOFLAGS", "-modcacherw")
        .env("OVNKUBE_LAB_CACHE", scratch.path())
        .output()
        .unwrap();
    require(&error_line(&output), &["cannot fetch the modules of Kubernetes", "GOPROXY"]);
}

#[test]
fn a_port_in_use_is_reported_and_nothing_is_left() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let name = format!("port{}", std::process::id());
    let suite = std::env::var(lab::directories::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    let output = lab()
        .args(["up", "--no-ovn", "--nodes", "0", "--name", &name, "--api-port", &port, "--suite", &suite])
        .output()
        .unwrap();
    require(&error_line(&output), &[&port, "in use", "--api-port"]);
    assert!(!crate::remains::dir(&name).exists());
}

#[test]
fn a_full_cache_disk_is_reported_before_the_work_starts() {
    let scratch = Scratch::new("full");
    // The tmpfs is in a separate mount namespace and disappears with the command.
    let script = "mount -t tmpfs -o size=8m tmpfs \"$1\" && exec env OVNKUBE_LAB_CACHE=\"$1\" \"$2\" up --no-kubernetes --name full";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(scratch.path())
        .arg(env!("CARGO_BIN_EXE_lab"))
        .output()
        .unwrap();
    require(&error_line(&output), &["no space left", "MiB needed", "OVNKUBE_LAB_CACHE"]);
}

#[test]
fn missing_root_is_reported() {
    // A copy that another user can execute.
    let scratch = Scratch::new("root");
    let copy = scratch.path().join("lab");
    std::fs::copy(env!("CARGO_BIN_EXE_lab"), &copy).unwrap();
    for words in [&["up"][..], &["down"], &["prepare"]] {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .args(words)
            .output()
            .unwrap();
        require(&error_line(&output), &["needs root", &format!("sudo lab {}", words[0])]);
    }
}

#[test]
fn invalid_directories_names_and_suites_are_rejected() {
    let output = lab().args(["up", "--name", "Bad Name"]).output().unwrap();
    require(&error_line(&output), &["Bad Name", "lower-case"]);
    let output = lab().args(["up"]).env("OVNKUBE_LAB_STATE", "relative").output().unwrap();
    require(&error_line(&output), &["relative", "must be absolute"]);
    let output =
        lab().args(["up", "--name", "no-programs"]).env("OVNKUBE_LAB_KUBERNETES", "/nowhere").output().unwrap();
    require(&error_line(&output), &["/nowhere", "kube-apiserver", "unset"]);
    let output = lab().args(["up", "--suite", "potato"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("trixie"));
    let output = lab().args(["status", "--name", "nobody"]).output().unwrap();
    require(&error_line(&output), &["no lab named \"nobody\"", "lab up"]);
}

#[test]
fn a_name_with_path_components_removes_nothing() {
    let scratch = Scratch::new("victim");
    let precious = scratch.path().join("precious");
    std::fs::write(&precious, "data").unwrap();
    let up = format!("../../../..{}", scratch.path().display());
    for name in [scratch.path().to_str().unwrap(), &up, "..", "."] {
        for verb in ["down", "up", "status", "logs"] {
            let output = lab().args([verb, "--name", name]).output().unwrap();
            require(&error_line(&output), &["invalid lab name"]);
        }
    }
    let output = lab().arg("down").env("OVNKUBE_LAB_NAME", "").output().unwrap();
    require(&error_line(&output), &["invalid lab name"]);
    assert!(precious.exists());
}

/// For an image, whose packages are downloaded.
const BUILDING: Duration = Duration::from_mins(10);

/// A `lab up` that builds its image; killed on drop.
struct Builder {
    process: Child,
    /// Its stderr. A thread reads it, so that waiting for the next line can time out.
    lines: Receiver<String>,
}

impl Builder {
    fn start(cache: &Path) -> Self {
        let mut process = lab()
            .args(["up", "--no-kubernetes", "--name", "no-image"])
            .env("OVNKUBE_LAB_CACHE", cache)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stderr.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { process, lines }
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_interrupted_image_leaves_no_mount_and_no_builder() {
    let scratch = Scratch::new("interrupted");
    let deadline = Instant::now() + BUILDING;
    let mut output = Vec::new();
    // While packages are being installed, file systems are mounted below the directory. Packages are downloaded before
    // that, which may fail for external reasons.
    let begun = (0..3).find_map(|_| {
        let builder = Builder::start(scratch.path());
        loop {
            match builder.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains("installing remaining packages") => return Some(builder),
                Ok(line) => output.push(line),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("no packages installed within {BUILDING:?}: {output:#?}"),
            }
        }
    });
    drop(begun.unwrap_or_else(|| panic!("mmdebstrap installs no packages: {output:#?}")));
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let mut users = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let mounts = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
            if mounts.contains(scratch.path().to_str().unwrap()) {
                users.push(entry.file_name());
            }
        }
        if users.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "still there: {users:?}");
    }
}
