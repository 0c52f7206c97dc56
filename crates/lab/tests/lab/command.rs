//! The `lab` command, as a person types it.

use std::process::{Command, Output};

use lab::record::Record;

use crate::{PATIENCE, remains};

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

/// Removes the lab also when an assertion fails.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        lab(&self.0, &["down"]);
    }
}

fn record(name: &str) -> Record {
    Record::load(&lab::place::Place::from_environment().unwrap(), name).unwrap()
}

#[test]
fn plain_tcp_is_for_those_who_ask_and_are_warned() {
    let name = name("plain");
    let _down = Down(name.clone());
    let both = lab(&name, &["up", "--plaintext", "--tls"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    let suite = std::env::var(lab::place::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
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
    let suite = std::env::var(lab::place::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    let words = ["up", "--no-kubernetes", "--databases", "standalone", "--nodes", "1", "--suite", &suite];
    let said = ok(&lab(&name, &words));
    assert!(said.contains("n1-ovn-controller") && said.contains("ovn-nbctl"), "{said}");
    let before = record(&name);
    // With mutual TLS, and the tools on the machines do not have to know.
    assert!(before.endpoints.northbound_remote.as_ref().unwrap().starts_with("ssl:"), "{:?}", before.endpoints);
    ok(&lab(&name, &["exec", "n1", "ovn-nbctl", "--timeout=30", "show"]));
    assert!(ok(&lab(&name, &["exec", "control", "ovn-sbctl", "--timeout=30", "show"])).contains("Chassis"));

    let again = ok(&lab(&name, &words));
    assert!(again.contains("runs already; nothing was changed"), "{again}");
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
    let status = ok(&lab(&name, &["status"]));
    assert!(status.contains("down: northd") && status.contains("SIGKILL"), "{status}");
    let metrics = ask_keeper(&name, "/metrics");
    assert!(metrics.contains("lab_component_up{component=\"northd\",machine=\"control\"} 0"), "{metrics}");
    let readyz = ask_keeper(&name, "/readyz");
    assert!(readyz.starts_with("HTTP/1.1 503") && readyz.contains("SIGKILL"), "{readyz}");
    ok(&lab(&name, &["restart", "northd"]));
    assert!(ok(&lab(&name, &["status"])).contains("all components run"));

    assert!(ok(&lab(&name, &["down"])).contains("is removed"));
    assert_eq!(remains::of(&before, &remains::folder(&name)), Vec::<String>::new());
    assert!(ok(&lab(&name, &["down"])).contains("nothing to remove"));
}

/// A request to the keeper's own endpoints.
fn ask_keeper(name: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let url = record(name).endpoints.telemetry.unwrap();
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_sigkill_of_the_lab_leaves_nothing_behind_after_down() {
    let name = name("sigkill");
    let _down = Down(name.clone());
    let suite = std::env::var(lab::place::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    ok(&lab(&name, &["up", "--kubelets", "--cni", "bridge", "--nodes", "1", "--suite", &suite]));
    // Something for the kubelet to run, so that there are containers and cgroups of pods to clean up.
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
    let said = String::from_utf8_lossy(&lab(&name, &["status"]).stderr).into_owned();
    assert!(said.contains("has crashed") && said.contains("lab down"), "{said}");
    assert!(ok(&lab(&name, &["down"])).contains("had crashed"));
    assert_eq!(remains::of(&before, &remains::folder(&name)), Vec::<String>::new());
}

#[test]
fn an_interrupted_start_leaves_nothing_behind() {
    use std::io::{BufRead, BufReader};
    let name = name("interrupted");
    let _down = Down(name.clone());
    let suite = std::env::var(lab::place::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    let mut up = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["--name", &name, "up", "--nodes", "1", "--suite", &suite])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // In the middle of it: machines are there, the API server is not yet.
    let lines = BufReader::new(up.stderr.take().unwrap()).lines();
    lines.map_while(Result::ok).find(|line| line.contains("kube-apiserver")).unwrap();
    let before = record(&name);
    assert!(!before.machines.is_empty());
    up.kill().unwrap();
    up.wait().unwrap();
    // The keeper notices it and has everything removed: nobody else does.
    remains::await_none(&before, &remains::folder(&name));
    // And the name is free again at once.
    ok(&lab(&name, &["up", "--no-kubernetes", "--no-ovn", "--nodes", "0", "--suite", &suite]));
}

#[test]
fn a_lost_or_damaged_record_does_not_hide_a_running_lab() {
    let suite = std::env::var(lab::place::SUITE_VARIABLE).unwrap_or_else(|_| "trixie".into());
    for damage in [None, Some("{ not json")] {
        let name = name("record");
        let _down = Down(name.clone());
        ok(&lab(&name, &["up", "--no-kubernetes", "--no-ovn", "--nodes", "1", "--suite", &suite]));
        let before = record(&name);
        let path = remains::folder(&name).join("lab.json");
        match damage {
            None => std::fs::remove_file(path).unwrap(),
            Some(text) => std::fs::write(path, text).unwrap(),
        }
        assert!(ok(&lab(&name, &["down"])).contains("is removed"));
        assert_eq!(remains::of(&before, &remains::folder(&name)), Vec::<String>::new());
    }
}
