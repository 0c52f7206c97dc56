//! `ovnkube ovsdb` against a real ovsdb-server.

#![allow(clippy::unwrap_used, clippy::panic)]

mod ovnkube;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::{Databases, Lab, LabSpec, Ovn};
use ovnkube::{Outcome, file, run};
use serde_json::{Value, json};

const DATABASE: &str = "OVN_Northbound";

#[test]
fn dump_watch_and_transact_against_a_real_server() {
    let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test("ovsdb-cli").unwrap().ovn(ovn)).unwrap();
    let remote = lab.record().endpoints.northbound.clone().unwrap();
    lab.nbctl(&["ls-add", "sw-b", "--", "ls-add", "sw-a", "--", "lsp-add", "sw-a", "port"]).unwrap();
    let long = "x".repeat(70);
    lab.nbctl(&["set", "logical_switch", "sw-a", &format!("external_ids:note={long}")]).unwrap();

    dump(&remote, &long);
    dump_that_fails(&remote);
    watch(&lab, &remote);
    watch_that_ends(&lab, &remote);
    transact(&lab, &remote);
    transact_that_is_refused(&lab, &remote);
}

fn ovsdb(arguments: &[&str]) -> Outcome {
    run(&[&["ovsdb"], arguments].concat(), &[])
}

fn succeeds(arguments: &[&str]) -> String {
    let outcome = ovsdb(arguments);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}: {outcome:?}");
    outcome.stdout
}

/// Asserts a one-line error with a hint and this text.
fn fails(arguments: &[&str], status: i32, says: &str) {
    let started = Instant::now();
    let outcome = ovsdb(arguments);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (Some(status), ""), "{arguments:?}: {outcome:?}");
    let line = &outcome.stderr;
    assert!(line.starts_with("error: ") && line.contains("hint: ") && line.contains(says), "{arguments:?}: {line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(started.elapsed() < Duration::from_secs(20), "{arguments:?} took {:?}", started.elapsed());
}

fn dump(remote: &str, long: &str) {
    // The database is detected, empty tables are left out, rows are sorted.
    let all = succeeds(&["dump", remote]);
    let place = |part: &str| all.find(part).unwrap_or_else(|| panic!("no {part} in\n{all}"));
    assert!(place("Logical_Switch (2 rows)\n_UUID") < place(" sw-a "));
    assert!(place(" sw-a ") < place(" sw-b"));
    assert!(place("Logical_Switch_Port (1 row)") < place("NB_Global (1 row)"));
    assert!(all.contains("(empty in every row: acls, "), "{all}");
    assert!(!all.contains("Logical_Router") && all.contains(long), "{all}");

    let some = succeeds(&["dump", remote, DATABASE, "Logical_Switch", "ACL", "--columns", "name,external_ids"]);
    assert_eq!(
        some,
        format!(
            "Logical_Switch (2 rows)\nNAME  EXTERNAL_IDS\nsw-a  {{note={long}}}\nsw-b\n\n\
             ACL (0 rows)\n"
        )
    );

    let text = succeeds(&["dump", remote, DATABASE, "Logical_Switch", "Logical_Switch_Port", "-o", "json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["database"], DATABASE);
    let (switches, ports) = (&json["tables"]["Logical_Switch"], &json["tables"]["Logical_Switch_Port"]);
    assert_eq!(switches[0]["name"], "sw-a");
    assert_eq!(switches[0]["external_ids"], json!({ "note": long }));
    assert_eq!(switches[0]["ports"], json!([ports[0]["_uuid"]]));
    assert_eq!((&switches[1]["name"], &switches[1]["ports"]), (&json!("sw-b"), &json!([])));
    assert_eq!(ports[0]["tag"], Value::Null);

    let uuids = succeeds(&["dump", remote, DATABASE, "Logical_Switch", "--columns", "_uuid", "-o", "json"]);
    let uuids: Value = serde_json::from_str(&uuids).unwrap();
    assert_eq!(uuids["tables"]["Logical_Switch"][1], json!({ "_uuid": switches[1]["_uuid"] }));
    // The first of several servers may be unreachable.
    let several = format!("unix:/nowhere/at/all,{remote}");
    assert!(succeeds(&["dump", &several, DATABASE, "NB_Global"]).starts_with("NB_Global (1 row)\n"));
}

fn dump_that_fails(remote: &str) {
    fails(&["dump", remote, "OVN_Nortbound"], 1, "did you mean OVN_Northbound?");
    fails(&["dump", remote, "Logical_Switch"], 1, "has no database \"Logical_Switch\"; hint: it has OVN_Northbound");
    fails(&["dump", remote, DATABASE, "logical_switch"], 1, "did you mean Logical_Switch?");
    fails(&["dump", remote, DATABASE, "Logical_Switch", "--columns", "nome"], 1, "did you mean name?");
}

fn watch(lab: &Lab, remote: &str) {
    for output in ["table", "json"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
            .args(["ovsdb", "watch", remote, DATABASE, "Logical_Switch", "--columns", "other_config"])
            .args(["--count", "3", "--timeout", "60", "-o", output])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let present: Vec<String> = lines.by_ref().take(2).collect();
        // One change at a time: simultaneous changes are merged. Other columns are not shown.
        lab.nbctl(&["ls-add", "new"]).unwrap();
        let insert = lines.next().unwrap();
        lab.nbctl(&["set", "logical_switch", "new", "external_ids:a=b"]).unwrap();
        lab.nbctl(&["set", "logical_switch", "new", "other_config:c=d"]).unwrap();
        let modify = lines.next().unwrap();
        lab.nbctl(&["ls-del", "new"]).unwrap();
        let delete = lines.next().unwrap();
        assert_eq!(lines.next(), None);
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));

        if output == "table" {
            assert!(present.iter().any(|line| line.starts_with("= Logical_Switch sw-a ")), "{present:?}");
            assert!(insert.starts_with("+ Logical_Switch new "), "{insert}");
            assert!(modify.starts_with("~ Logical_Switch new "), "{modify}");
            assert!(modify.ends_with("  other_config: {} → {c=d}"), "{modify}");
            assert!(delete.starts_with("- Logical_Switch new "), "{delete}");
        } else {
            let [present, insert, modify, delete] =
                [&present[0], &insert, &modify, &delete].map(|line| serde_json::from_str::<Value>(line).unwrap());
            assert_eq!(present["change"], "present");
            let of = |change: &str| json!({ "change": change, "table": "Logical_Switch", "uuid": insert["uuid"] });
            let with = |mut line: Value, key: &str, value: Value| {
                line[key] = json!({ "other_config": value });
                line
            };
            assert_eq!(insert, with(of("insert"), "new", json!({})));
            assert_eq!(modify, with(with(of("modify"), "old", json!({})), "new", json!({ "c": "d" })));
            assert_eq!(delete, with(of("delete"), "old", json!({ "c": "d" })));
        }
    }
}

fn watch_that_ends(lab: &Lab, remote: &str) {
    let quiet = ["watch", remote, DATABASE, "Logical_Router", "--changes-only", "--timeout", "3"];
    assert_eq!(succeeds(&quiet), "");
    fails(&[&quiet[..], &["--count", "2"]].concat(), 1, "0 of 2 changes within 3 s");
    fails(&["watch", remote, DATABASE, "Logical_Ruter"], 1, "did you mean Logical_Router?");

    // SIGTERM and SIGINT end it with success.
    for signal in ["TERM", "INT"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
            .args(["ovsdb", "watch", remote, DATABASE, "NB_Global", "--timeout", "60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("= NB_Global "), "{line}");
        assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success());
        let started = Instant::now();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    // So does a closed pipe, at the next change.
    let mut child = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
        .args(["ovsdb", "watch", remote, DATABASE, "Logical_Switch", "--timeout", "60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    lab.nbctl(&["ls-add", "new", "--", "ls-del", "sw-b"]).unwrap();
    let started = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(20));
    lab.nbctl(&["ls-del", "new"]).unwrap();
}

fn insert(name: &str) -> String {
    json!([{ "op": "insert", "table": "Logical_Switch", "row": { "name": name } }]).to_string()
}

fn transact(lab: &Lab, remote: &str) {
    let switches = || lab.nbctl(&["--bare", "--columns=name", "list", "logical_switch"]).unwrap();
    let results: Value = serde_json::from_str(&succeeds(&["transact", remote, DATABASE, &insert("one")])).unwrap();
    assert_eq!(results[0]["uuid"][0], "uuid");
    assert!(switches().contains("one"));

    let path = file("ovsdb-operations.json", insert("two").as_bytes());
    succeeds(&["transact", remote, DATABASE, &format!("@{path}")]);
    assert!(switches().contains("two"));

    let mut child = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
        .args(["ovsdb", "transact", remote, DATABASE, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(insert("three").as_bytes()).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert!(switches().contains("three"));

    let dry_run = succeeds(&["transact", remote, DATABASE, &insert("four"), "--dry-run"]);
    let results: Vec<Value> = serde_json::from_str(&dry_run).unwrap();
    assert_eq!((results.len(), &results[0]["uuid"][0]), (1, &json!("uuid")));
    assert!(!switches().contains("four"));
}

fn transact_that_is_refused(lab: &Lab, remote: &str) {
    let ok = json!({ "op": "insert", "table": "Logical_Switch", "row": { "name": "five" } });
    let wrong = json!({ "op": "insert", "table": "Logical_Switch", "row": { "nome": "five" } });
    let operations = json!([ok, wrong]).to_string();
    for extra in [&[][..], &["--dry-run"]] {
        let arguments = [&["transact", remote, DATABASE, &operations][..], extra].concat();
        fails(&arguments, 1, "rejected operation 1 (insert Logical_Switch): ");
    }
    assert!(!lab.nbctl(&["--bare", "--columns=name", "list", "logical_switch"]).unwrap().contains("five"));
    // A dangling reference is rejected at commit.
    let nobody = "01234567-89ab-cdef-0123-456789abcdef";
    let row = json!({ "name": "six", "ports": ["uuid", nobody] });
    let dangling = json!([{ "op": "insert", "table": "Logical_Switch", "row": row }]).to_string();
    fails(&["transact", remote, DATABASE, &dangling], 1, "rejected the commit: referential integrity violation");
    fails(&["transact", remote, "Nothing", "[]"], 1, "has no database \"Nothing\"");
}

#[test]
fn tls_needs_the_right_files() {
    let ovn = Ovn { databases: Databases::Standalone, tls: true, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test("ovsdb-cli-tls").unwrap().ovn(ovn)).unwrap();
    let pki = lab::directories::Directories::from_environment().unwrap().lab(lab.name()).join("pki/ovn");
    // A relay makes the lab's server reachable on this host's loopback.
    let target = lab.record().endpoints.northbound_remote.clone().unwrap();
    let target = target.trim_start_matches("ssl:").parse().unwrap();
    let relay = lab::tcp_forwarder::TcpForwarder::start(lab.machine("control").unwrap(), target, None).unwrap();
    let remote = format!("ssl:{}", relay.address());
    let [key, certificate, authority] = ["ovn.key", "ovn.crt", "ca.crt"].map(|name| pki.join(name));
    let files = ["-p", key.to_str().unwrap(), "-c", certificate.to_str().unwrap(), "-C", authority.to_str().unwrap()];
    let dump = [&["dump", remote.as_str(), DATABASE, "NB_Global"][..], &files].concat();
    assert!(succeeds(&dump).starts_with("NB_Global (1 row)\n"));
    // The certificate is not for loopback: only host name verification fails.
    fails(&[&dump[..], &["--verify-host-name"]].concat(), 1, "not valid for name");
    // Plain TCP to a TLS server.
    fails(&["dump", &remote.replace("ssl:", "tcp:"), DATABASE], 1, "cannot reach OVN_Northbound at tcp:127.0.0.1:");
}

#[test]
fn an_unreachable_server_is_a_one_line_error() {
    for verb in [&["dump", "unix:/nowhere/at/all"][..], &["watch", "unix:/nowhere/at/all", "D", "T"]] {
        fails(verb, 1, "unix:/nowhere/at/all: No such file or directory");
    }
    fails(&["transact", "unix:/nowhere/at/all", "D", "[]"], 1, "cannot reach D at unix:/nowhere/at/all: No such file");
    fails(&["dump", "tcp:127.0.0.1:1", "D"], 1, "Connection refused");
    // With several remotes it retries until the timeout.
    fails(&["dump", "tcp:127.0.0.1:1,tcp:127.0.0.1:2", "D", "--timeout", "1"], 1, "timed out");
    // A server that accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = format!("tcp:{}", silent.local_addr().unwrap());
    fails(&["dump", &remote, "D", "--timeout", "1"], 1, "cannot reach D at tcp:127.0.0.1:");
}

#[test]
fn usage_errors_have_status_2_and_contact_no_server() {
    let nowhere = "unix:/nowhere/at/all";
    for (arguments, says) in [
        (&["dump"][..], "REMOTE"),
        (&["dump", "/run/db.sock"], "unix:PATH"),
        (&["dump", "ssl:127.0.0.1:1", "D"], "--private-key"),
        (&["dump", nowhere, "-p", "key.pem"], "--certificate"),
        (&["dump", nowhere, "--verify-host-name"], "--ca-cert"),
        (&["dump", nowhere, "--timeout", "0"], "--timeout"),
        (&["watch", nowhere, "D"], "TABLE"),
        (&["watch", nowhere, "D", "T", "--count", "0"], "--count"),
        (&["transact", nowhere, "D"], "OPERATIONS"),
        (&["transact", nowhere, "D", "[{]"], "not JSON"),
        (&["transact", nowhere, "D", "{}"], "not a JSON array"),
        (&["transact", nowhere, "D", r#"["D"]"#], "a separate argument"),
        (&["transact", nowhere, "D", "@/nowhere/at/all"], "cannot read /nowhere/at/all"),
    ] {
        fails(arguments, 2, says);
    }
    // Missing files are named.
    let files = ["-p", "/nowhere/key.pem", "-c", "/nowhere/cert.pem", "-C", "/nowhere/ca.pem"];
    fails(&[&["dump", "ssl:127.0.0.1:1", "D"][..], &files].concat(), 1, "/nowhere/ca.pem");
}
