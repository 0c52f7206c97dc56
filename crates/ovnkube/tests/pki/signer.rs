//! Two signers at a real API server: one stands by, and is ready only while it could take over; a CA that is deleted by hand is
//! replaced, and stays trusted.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lab::{Kubernetes, Lab, LabSpec, Program};

use crate::site::until;

const LIMIT: Duration = Duration::from_secs(10);

fn metrics(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9520 + number))
}

fn start(lab: &Lab, number: u16) {
    let program = Program::new(format!("signer-{number}"), PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
        .arguments(["pki", "serve", "--identity", &format!("signer-{number}"), "--distribution-delay", "5s"])
        .arguments(["--metrics-bind-address", &metrics(number).to_string()]);
    lab.run(&program).unwrap();
}

/// Status and body of `/readyz`.
fn readiness(lab: &Lab, number: u16) -> Result<(bool, String), String> {
    let text = || {
        let mut stream = lab.machine("control").ok()?.connect(metrics(number), LIMIT).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let text = text().ok_or("no answer")?;
    Ok((text.starts_with("HTTP/1.0 200"), text))
}

fn await_readiness(lab: &Lab, number: u16, ready: bool, says: &str) {
    until("readiness of a signer", || match readiness(lab, number)? {
        (now, text) if now == ready && text.contains(says) => Ok(()),
        (_, text) => Err(text),
    });
}

/// One value of an object.
fn value(lab: &Lab, object: &str, key: &str) -> Result<String, String> {
    let template = format!("go-template={{{{index .data \"{key}\"}}}}");
    let words = ["-n", "ovn-kubernetes", "get", object, "-o", &template];
    lab.kubectl(&words).map_err(|error| error.to_string())
}

fn bundle(lab: &Lab) -> Vec<String> {
    let text = value(lab, "configmap/ovn-ca", "ca-bundle.crt").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("# ")).map(str::to_owned).collect()
}

#[test]
fn a_standby_is_ready_only_while_it_could_take_over() {
    let lab = Lab::start(LabSpec::for_test("pki-signer").unwrap().kubernetes(Kubernetes::default())).unwrap();
    lab.kubectl(&["create", "namespace", "ovn-kubernetes"]).unwrap();
    start(&lab, 1);
    until("the first certificate", || value(&lab, "secret/ovn-cert", "tls.crt"));
    start(&lab, 2);
    await_readiness(&lab, 1, true, "");
    await_readiness(&lab, 2, true, "");
    lab.kill("kube-apiserver").unwrap();
    await_readiness(&lab, 2, false, "this instance could not take over");
    lab.restart("kube-apiserver").unwrap();
    await_readiness(&lab, 2, true, "");

    a_deleted_ca_stays_trusted(&lab);

    // It does take over.
    lab.kill("signer-1").unwrap();
    let leaf = value(&lab, "secret/ovn-cert", "tls.crt").unwrap();
    lab.kubectl(&["-n", "ovn-kubernetes", "delete", "secret", "ovn-cert"]).unwrap();
    until("a certificate of the other signer", || match value(&lab, "secret/ovn-cert", "tls.crt")? {
        now if now != leaf => Ok(()),
        _ => Err("the same one".to_owned()),
    });
}

fn a_deleted_ca_stays_trusted(lab: &Lab) {
    let (before, leaf) = (bundle(lab), value(lab, "secret/ovn-cert", "tls.crt").unwrap());
    assert_eq!(before.len(), 1, "{before:?}");
    lab.kubectl(&["-n", "ovn-kubernetes", "delete", "secret", "ovn-ca"]).unwrap();
    until("a second CA in the bundle", || {
        let now = bundle(lab);
        assert!(now.contains(&before[0]), "the former CA is not trusted any more: {now:?}");
        if now.len() == 2 { Ok(()) } else { Err(format!("{now:?}")) }
    });
    let words = [
        "-n",
        "ovn-kubernetes",
        "get",
        "events",
        "--field-selector=reason=AuthorityCreated",
        "-o",
        "jsonpath={.items[*].message}",
    ];
    until("the Event", || {
        let said = lab.kubectl(&words).unwrap();
        if said.contains("the Secret was missing") { Ok(()) } else { Err(said) }
    });
    until("a certificate of the new CA", || match value(lab, "secret/ovn-cert", "tls.crt")? {
        now if now != leaf => Ok(()),
        _ => Err("the same one".to_owned()),
    });
    assert!(bundle(lab).contains(&before[0]));
}
