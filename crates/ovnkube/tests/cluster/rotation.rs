//! Certificates rotate under a running cluster: sessions stay, writes succeed, new connections use the new files, and nothing is
//! restarted. Then faults of the signer, and of its objects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::pki::Authority;
use lab::{Databases, Family, GatewayMode, Lab, LabSpec, Lifetimes, Machine, Ovn};
use serde_json::{Value, json};

use crate::common::{product, scale_application};
use crate::members::{kubectl, pod, until};

const NODES: [&str; 2] = ["n1", "n2"];

/// Long enough for kubelets that update files every three seconds.
fn lifetimes() -> Lifetimes {
    let times = |lifetime: &str, renewed: &str| [lifetime.to_owned(), renewed.to_owned()];
    Lifetimes { ca: times("2h", "1h"), leaf: times("10m", "3m"), distribution_delay: "40s".into() }
}

/// Writes to the northbound database from the controller's pod, each time with a new connection.
struct Writes {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<String>>,
}

impl Writes {
    fn start(lab: &Lab) -> Self {
        let (stop, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (control, pod) = (lab.machine("control").unwrap(), pod(lab, "ovnkube-master", "n1"));
        let (stopped, counted) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let mut failed = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match write(&control, &pod, counted.load(Ordering::Relaxed)) {
                    Ok(_) => _ = counted.fetch_add(1, Ordering::Relaxed),
                    Err(error) => failed.push(error),
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            failed
        });
        Self { stop, count, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.thread.join().unwrap();
        assert!(failed.is_empty(), "writes failed: {failed:?}");
        assert!(self.count.load(Ordering::Relaxed) > 20);
    }
}

fn write(control: &Machine, pod: &str, number: usize) -> Result<String, String> {
    let value = format!("external_ids:rotation={number}");
    let exec = ["kubectl", "-n", "ovn-kubernetes", "exec", pod, "-c", "ovnkube-controller", "--"];
    let words = [&exec[..], &["ovn-nbctl", "--timeout=20", "set", "NB_Global", ".", &value]].concat();
    control.run(&words).map_err(|error| error.to_string())
}

/// One value of an object; empty if it is missing.
fn value(lab: &Lab, object: &str, key: &str) -> String {
    let template = format!("go-template={{{{with index .data \"{key}\"}}}}{{{{.}}}}{{{{end}}}}");
    lab.kubectl(&["-n", "ovn-kubernetes", "get", object, "-o", &template, "--ignore-not-found"]).unwrap()
}

fn status(lab: &Lab) -> Value {
    let script = "ovnkube pki status -o json || true";
    let text = kubectl(lab, &["exec", "ds/ovnkube-pki", "--", "sh", "-c", script]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Fingerprint of the certificate with this role.
fn fingerprint(status: &Value, role: &str) -> Option<String> {
    let entries = status["certificates"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["role"] == role);
    entry.map(|entry| entry["fingerprint"].as_str().unwrap().to_owned())
}

fn certificate(lab: &Lab, role: &str) -> String {
    fingerprint(&status(lab), role).unwrap_or_else(|| panic!("no {role}"))
}

/// Waits for another certificate of this role; returns it.
fn await_another(lab: &Lab, role: &str, before: &str) -> String {
    until(role, || match fingerprint(&status(lab), role) {
        Some(now) if now != before => Ok(now),
        other => Err(format!("{other:?}")),
    })
}

/// The certificate that a server shows: the first eight bytes of its SHA-256.
fn shown(lab: &Lab, port: u16) -> String {
    let node = lab.machine("n1").unwrap();
    let address = node.run(&["hostname", "-I"]).unwrap();
    let address = address.split_whitespace().next().unwrap();
    let script = format!(
        "echo | timeout 10 openssl s_client -connect {address}:{port} 2>/dev/null | openssl x509 -outform DER | sha256sum"
    );
    node.run(&["sh", "-c", &script]).unwrap()[..16].to_owned()
}

fn await_shown(lab: &Lab, expected: &str) {
    for port in [6641, 6642, 6643, 6644, 6646] {
        until("the server's certificate", || {
            let shown = shown(lab, port);
            if shown == expected { Ok(()) } else { Err(format!("port {port} shows {shown}, not {expected}")) }
        });
    }
}

/// Sessions with both databases, by client.
fn sessions(lab: &Lab) -> BTreeSet<String> {
    let words = ["ss", "-Htn", "state", "established", "( sport = :6641 or sport = :6642 or sport = :6646 )"];
    let text = lab.machine("n1").unwrap().run(&words).unwrap();
    text.lines().map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")).collect()
}

/// Sessions that last: not those of commands and probes.
fn lasting_sessions(lab: &Lab) -> BTreeSet<String> {
    let mut lasting = sessions(lab);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_secs(1));
        lasting = lasting.intersection(&sessions(lab)).cloned().collect();
    }
    lasting
}

/// Name and restarts of all pods but the signers.
fn pods(lab: &Lab) -> BTreeSet<String> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
    let text = kubectl(lab, &["get", "pods", "-o", path]);
    text.lines().filter(|line| !line.starts_with("ovnkube-pki-")).map(str::to_owned).collect()
}

fn rotate(lab: &Lab, options: &[&str]) {
    kubectl(lab, &[&["exec", "ds/ovnkube-pki", "--", "ovnkube", "pki", "rotate"], options].concat());
}

fn await_connected(lab: &Lab) {
    for node in NODES {
        let pod = pod(lab, "ovnkube", node);
        until("ovn-controller", || {
            let words =
                ["exec", &pod, "-c", "ovn-controller", "--", "ovn-appctl", "-t", "ovn-controller", "connection-status"];
            let status = kubectl(lab, &words);
            if status == "connected" { Ok(()) } else { Err(status) }
        });
    }
}

fn await_signer(lab: &Lab) {
    until("a ready signer", || {
        let ready = kubectl(lab, &["get", "ds", "ovnkube-pki", "-o", "jsonpath={.status.numberReady}"]);
        if ready == "1" { Ok(()) } else { Err(ready) }
    });
}

fn kill_servers(lab: &Lab) {
    let pod = pod(lab, "ovnkube-db", "n1");
    for (container, database) in [("nbdb", "nb"), ("sbdb", "sb")] {
        let script = format!("kill -9 $(cat /run/ovn/ovn{database}_db.pid)");
        kubectl(lab, &["exec", &pod, "-c", container, "--", "sh", "-c", &script]);
    }
}

/// The servers restart, so that every client must connect again.
fn restart_servers(lab: &Lab) {
    let before = lasting_sessions(lab);
    kill_servers(lab);
    until("new sessions", || {
        let now = sessions(lab);
        let count = now.difference(&before).count();
        if count >= before.len() { Ok(()) } else { Err(format!("{now:?}, before {before:?}")) }
    });
    await_connected(lab);
}

#[test]
#[ignore = "takes eight minutes: make test-pki"]
fn certificates_rotate_without_interruptions() {
    let ovn = Ovn { databases: Databases::Pods, lifetimes: Some(lifetimes()), ..Ovn::default() };
    let spec = LabSpec::for_test("pki").unwrap().nodes(2).family(Family::V4).ovn(ovn);
    let lab = Lab::start(spec.product(product(GatewayMode::Shared))).unwrap();

    let (pods_before, sessions_before) = (pods(&lab), lasting_sessions(&lab));
    assert!(sessions_before.len() >= 4, "controller, northd and two nodes: {sessions_before:?}");
    let writes = Writes::start(&lab);
    rotations(&lab);
    let after = sessions(&lab);
    assert!(sessions_before.is_subset(&after), "sessions were {sessions_before:?} and are {after:?}");
    assert_eq!(pods(&lab), pods_before);
    a_killed_signer_is_continued(&lab);
    a_deleted_ca_is_replaced(&lab);
    a_damaged_ca_is_left_alone(&lab);
    writes.stop();
    let after = sessions(&lab);
    assert!(sessions_before.is_subset(&after), "sessions were {sessions_before:?} and are {after:?}");

    // Nothing that is in use was issued by the first CA: all programs have new files.
    restart_servers(&lab);
    scale_application(&lab, 3);
    an_expired_certificate_recovers(&lab);
    scale_application(&lab, 4);
    let restarts_of_servers = pods(&lab);
    assert_eq!(restarts_of_servers, pods_before, "no pod was restarted");
}

/// The certificate by its age, then twice the CA; the second time the first one loses all trust.
fn rotations(lab: &Lab) {
    let (mut ca, mut leaf) = (certificate(lab, "signing-ca"), certificate(lab, "certificate"));
    await_shown(lab, &leaf);
    let first = leaf.clone();
    leaf = await_another(lab, "certificate", &leaf);
    assert_eq!(certificate(lab, "signing-ca"), ca, "only the certificate is renewed");
    await_shown(lab, &leaf);
    for options in [["--ca"].as_slice(), &["--ca", "--retire"]] {
        rotate(lab, options);
        ca = await_another(lab, "signing-ca", &ca);
        leaf = await_another(lab, "certificate", &leaf);
        await_shown(lab, &leaf);
    }
    assert_ne!(leaf, first);
    until("former CAs to leave the bundle", || {
        let count = value(lab, "configmap/ovn-ca", "ca-bundle.crt").matches("BEGIN").count();
        if count == 1 { Ok(()) } else { Err(format!("{count} CAs")) }
    });
}

fn a_killed_signer_is_continued(lab: &Lab) {
    let ca = certificate(lab, "signing-ca");
    rotate(lab, &["--ca"]);
    until("the next CA", || fingerprint(&status(lab), "next-ca").ok_or_else(|| "none".to_owned()));
    kubectl(lab, &["delete", "pod", "-l", "app=ovnkube-pki", "--force", "--grace-period=0"]);
    await_signer(lab);
    await_another(lab, "signing-ca", &ca);
    assert_eq!(fingerprint(&status(lab), "next-ca"), None);
}

fn a_deleted_ca_is_replaced(lab: &Lab) {
    let (ca, leaf) = (certificate(lab, "signing-ca"), certificate(lab, "certificate"));
    kubectl(lab, &["delete", "secret", "ovn-ca"]);
    await_another(lab, "signing-ca", &ca);
    let status = status(lab);
    let trusts = |entry: &Value| entry["fingerprint"] == ca.as_str() && entry["trusted"] == true;
    assert!(status["certificates"].as_array().unwrap().iter().any(trusts), "{status}");
    let leaf = await_another(lab, "certificate", &leaf);
    await_shown(lab, &leaf);
}

fn a_damaged_ca_is_left_alone(lab: &Lab) {
    let key = value(lab, "secret/ovn-ca", "tls.key");
    let change = |key: &str| {
        let change = json!({ "data": { "tls.key": key } }).to_string();
        kubectl(lab, &["patch", "secret", "ovn-ca", "--type=merge", "-p", &change]);
    };
    change("Z2FyYmFnZQ==");
    until("the Event", || {
        let events = kubectl(lab, &["get", "events", "--field-selector=reason=AuthorityUnusable", "-o", "name"]);
        if events.is_empty() { Err("none".to_owned()) } else { Ok(()) }
    });
    assert_eq!(value(lab, "secret/ovn-ca", "tls.key"), "Z2FyYmFnZQ==");
    change(&key);
    await_signer(lab);
}

/// All programs have an expired certificate and no session, as after a long suspend; the signer then runs again.
fn an_expired_certificate_recovers(lab: &Lab) {
    let away = json!({ "spec": { "template": { "spec": { "nodeSelector": { "no": "node" } } } } }).to_string();
    kubectl(lab, &["patch", "ds", "ovnkube-pki", "--type=merge", "-p", &away]);
    until("no signer", || {
        let pods = kubectl(lab, &["get", "pods", "-l", "app=ovnkube-pki", "-o", "name"]);
        if pods.is_empty() { Ok(()) } else { Err(pods) }
    });
    lab.export_certificates().unwrap();
    let folder = lab::directories::Directories::from_environment().unwrap().lab(lab.name()).join("pki/ovn");
    let authority = Authority::from_files(&folder, "signing-ca.crt", "signing-ca.key").unwrap();
    let expired = authority.issue_expired("expired", "ovn").unwrap();
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let data = json!({ "stringData": { "tls.crt": read(&expired.certificate), "tls.key": read(&expired.key) } });
    kubectl(lab, &["patch", "secret", "ovn-cert", "--type=merge", "-p", &data.to_string()]);
    let control = lab.machine("control").unwrap();
    let pod = pod(lab, "ovnkube-master", "n1");
    until("connections to fail", || match write(&control, &pod, 0) {
        Ok(_) => Err("a write succeeded".to_owned()),
        Err(_) => Ok(()),
    });
    kill_servers(lab);
    let back = json!({ "spec": { "template": { "spec": { "nodeSelector": null } } } }).to_string();
    kubectl(lab, &["patch", "ds", "ovnkube-pki", "--type=merge", "-p", &back]);
    until("a write", || write(&control, &pod, 1));
    await_connected(lab);
}
