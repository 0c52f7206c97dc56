//! The `lab` command, as a user types it.

use std::process::{Command, Output};

use lab::record::Record;

use crate::{TIMEOUT, remains};

fn lab(name: &str, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(["--name", name]).args(words).output().unwrap()
}

fn ok(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn name(purpose: &str) -> String {
    format!("c{}-{purpose}", std::process::id())
}

/// Removes the lab also if an assertion fails.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        lab(&self.0, &["down"]);
    }
}

fn record(name: &str) -> Record {
    Record::load(&lab::directories::Directories::from_environment().unwrap(), name).unwrap()
}

#[test]
fn plaintext_needs_its_flag_and_prints_a_warning() {
    let name = name("plain");
    let _down = Down(name.clone());
    let both = lab(&name, &["up", "--plaintext", "--tls"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    let suite = std::env::var(lab::directories::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    let words = ["--no-kubernetes", "--databases", "standalone", "--nodes", "0", "--northds", "0", "--suite", &suite];
    let up = lab(&name, &[&["up", "--plaintext"], &words[..]].concat());
    let warned = String::from_utf8_lossy(&up.stderr).into_owned();
    ok(&up);
    assert!(warned.contains("WARNING") && warned.contains("Every pod"), "{warned}");
    assert!(record(&name).endpoints.northbound_remote.unwrap().starts_with("tcp:"));
}

#[test]
fn up_status_exec_logs_fault_restart_down() {
    let name = name("tour");
    let _down = Down(name.clone());
    let suite = std::env::var(lab::directories::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    let words = ["up", "--no-kubernetes", "--databases", "standalone", "--nodes", "1", "--suite", &suite];
    let output = ok(&lab(&name, &words));
    assert!(output.contains("n1-ovn-controller") && output.contains("ovn-nbctl"), "{output}");
    let before = record(&name);
    // With mutual TLS, of which the tools on the machines do not need to know.
    assert!(before.endpoints.northbound_remote.as_ref().unwrap().starts_with("ssl:"), "{:?}", before.endpoints);
    ok(&lab(&name, &["exec", "n1", "ovn-nbctl", "--timeout=30", "show"]));
    assert!(ok(&lab(&name, &["exec", "control", "ovn-sbctl", "--timeout=30", "show"])).contains("Chassis"));

    let again = ok(&lab(&name, &words));
    assert!(again.contains("is already running; nothing was changed"), "{again}");
    assert_eq!(serde_json::to_value(&before).unwrap(), serde_json::to_value(record(&name)).unwrap());

    let status: serde_json::Value = serde_json::from_str(&ok(&lab(&name, &["status", "-o", "json"]))).unwrap();
    assert_eq!(status["phase"], "ready");
    assert_eq!(status["components_down"], serde_json::json!([]));
    let listed = ok(&lab(&name, &["list"]));
    assert!(listed.contains(&name), "{listed}");

    assert!(ok(&lab(&name, &["exec", "n1", "hostname"])).contains("n1"));
    assert_eq!(lab(&name, &["exec", "n1", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let unknown = lab(&name, &["exec", "n9", "true"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there are: fabric, control"));
    assert!(ok(&lab(&name, &["logs", "northd"])).contains("ovn_northd"));
    assert!(ok(&lab(&name, &["logs"])).contains("n1-ovs-vswitchd"));

    let readyz = ask_keeper(&name, "/readyz");
    assert!(readyz.starts_with("HTTP/1.1 200"), "{readyz}");
    assert!(ok(&lab(&name, &["fault", "kill", "northd"])).contains("killed northd"));
    // The keeper learns of the exit a moment after the process is gone.
    let down = lab::poll(TIMEOUT, || {
        let (status, readyz) = (ok(&lab(&name, &["status"])), ask_keeper(&name, "/readyz"));
        let says = status.contains("down: northd") && status.contains("SIGKILL");
        let unready = readyz.starts_with("HTTP/1.1 503") && readyz.contains("SIGKILL");
        if says && unready { Ok(()) } else { Err(format!("{status}\n{readyz}")) }
    });
    down.unwrap_or_else(|found| panic!("{found}"));
    let metrics = ask_keeper(&name, "/metrics");
    assert!(metrics.contains("lab_component_up{component=\"northd\",machine=\"control\"} 0"), "{metrics}");
    ok(&lab(&name, &["restart", "northd"]));
    assert!(ok(&lab(&name, &["status"])).contains("all components run"));

    assert!(ok(&lab(&name, &["down"])).contains("is removed"));
    assert_eq!(remains::of(&before, &remains::dir(&name)), Vec::<String>::new());
    assert!(ok(&lab(&name, &["down"])).contains("nothing to remove"));
}

/// An HTTP request to the keeper.
fn ask_keeper(name: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let url = record(name).endpoints.telemetry.unwrap();
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn down_removes_everything_after_the_keeper_was_killed() {
    let name = name("sigkill");
    let _down = Down(name.clone());
    let suite = std::env::var(lab::directories::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    ok(&lab(&name, &["up", "--kubelets", "--cni", "bridge", "--nodes", "1", "--suite", &suite]));
    // A pod, so that there are containers and pod cgroups to clean up.
    ok(&lab(
        &name,
        &["kubectl", "run", "web", "--image=localhost/agnhost:lab", "--image-pull-policy=Never", "--", "netexec"],
    ));
    ok(&lab(&name, &["kubectl", "wait", "--for=condition=Ready", "pod/web", "--timeout=100s"]));
    let before = record(&name);
    assert!(remains::cgroups_of(&name).len() >= before.cgroups.len() && !before.cgroups.is_empty());
    let keeper = before.owner.open().unwrap();
    keeper.signal(rustix::process::Signal::KILL);
    assert!(keeper.wait(std::time::Duration::from_secs(30)));
    assert!(ok(&lab(&name, &["list"])).contains("crashed"));
    let output = String::from_utf8_lossy(&lab(&name, &["status"]).stderr).into_owned();
    assert!(output.contains("has crashed") && output.contains("lab down"), "{output}");
    assert!(ok(&lab(&name, &["down"])).contains("had crashed"));
    assert_eq!(remains::of(&before, &remains::dir(&name)), Vec::<String>::new());
}

#[test]
fn an_interrupted_start_leaves_nothing_behind() {
    use std::io::{BufRead, BufReader};
    let name = name("interrupted");
    let _down = Down(name.clone());
    let suite = std::env::var(lab::directories::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    let mut up = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["--name", &name, "up", "--nodes", "1", "--suite", &suite])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // In the middle of the start: machines exist, the API server does not.
    let lines = BufReader::new(up.stderr.take().unwrap()).lines();
    lines.map_while(Result::ok).find(|line| line.contains("kube-apiserver")).unwrap();
    let before = record(&name);
    assert!(!before.machines.is_empty());
    up.kill().unwrap();
    up.wait().unwrap();
    // The keeper notices it and has everything removed.
    remains::await_none(&before, &remains::dir(&name));
    // And the name can be used again immediately.
    ok(&lab(&name, &["up", "--no-kubernetes", "--no-ovn", "--nodes", "0", "--suite", &suite]));
}

#[test]
fn down_removes_a_running_lab_without_a_readable_record() {
    let suite = std::env::var(lab::directories::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    for damage in [None, Some("{ not json")] {
        let name = name("record");
        let _down = Down(name.clone());
        ok(&lab(&name, &["up", "--no-kubernetes", "--no-ovn", "--nodes", "1", "--suite", &suite]));
        let before = record(&name);
        let path = remains::dir(&name).join("lab.json");
        match damage {
            None => std::fs::remove_file(path).unwrap(),
            Some(text) => std::fs::write(path, text).unwrap(),
        }
        assert!(ok(&lab(&name, &["down"])).contains("is removed"));
        assert_eq!(remains::of(&before, &remains::dir(&name)), Vec::<String>::new());
    }
}
