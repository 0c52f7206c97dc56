//! Certificate files that are half-written, expired or renewed, under running programs: what they had stays in effect, nothing has
//! to be restarted.

use std::collections::BTreeMap;

use lab::pki::Authority;
use lab::{Databases, Family, Lab, LabSpec, Ovn};

use crate::site::{Pki, create, dump, ovn_controller, until};

const REMOTE: &str = "ssl:10.99.0.1:6642";

fn start(purpose: &str) -> Lab {
    let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
    Lab::start(LabSpec::for_test(purpose).unwrap().nodes(1).family(Family::V4).ovn(ovn)).unwrap()
}

/// Makes both servers close all sessions: every program has to connect again.
fn reconnect(lab: &Lab) {
    let control = lab.machine("control").unwrap();
    for database in ["nb", "sb"] {
        let socket = format!("/run/ovn/ovn{database}_db.ctl");
        control.run(&["ovn-appctl", "-t", &socket, "ovsdb-server/reconnect"]).unwrap();
    }
}

/// How often the programs were connected so far: northd with both databases, ovn-controller.
fn connections(lab: &Lab) -> [usize; 3] {
    let count = |component: &str, port: u16| {
        let log = lab.log(component).unwrap();
        log.lines().filter(|line| line.ends_with(&format!(":{port}: connected"))).count()
    };
    [count("northd", 6641), count("northd", 6642), count("n1-ovn-controller", 6642)]
}

/// Waits until all programs have connected again, and a change reaches the node.
fn await_new_sessions(lab: &Lab, before: [usize; 3]) {
    until("new sessions of northd and ovn-controller", || {
        let now = connections(lab);
        if now.iter().zip(before).all(|(now, before)| *now > before) {
            Ok(())
        } else {
            Err(format!("{before:?}, {now:?}"))
        }
    });
    until("ovn-controller", || ovn_controller(lab));
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
}

fn processes(lab: &Lab) -> BTreeMap<&'static str, u32> {
    let names = ["nb", "sb", "northd", "n1-ovn-controller"];
    names.map(|name| (name, lab.record().component(name).unwrap().process.pid)).into_iter().collect()
}

#[test]
fn half_written_files_leave_the_former_ones_in_effect() {
    let lab = start("pki-files");
    let pki = Pki::of(&lab);
    let processes_before = processes(&lab);
    let good = BTreeMap::from(["ovn.crt", "ovn.key", "ca.crt"].map(|file| (file, pki.read(file))));
    let half = |file: &str| pki.read(file)[..pki.read(file).len() / 2].to_vec();
    for (file, damaged) in [
        ("ovn.crt", half("ovn.crt")),
        ("ovn.crt", Vec::new()),
        ("ovn.key", half("ovn.key")),
        ("ca.crt", half("ca.crt")),
        ("ca.crt", Vec::new()),
    ] {
        let before = connections(&lab);
        // In place: no program may depend on an atomic replacement.
        std::fs::write(pki.path(file), damaged).unwrap();
        reconnect(&lab);
        await_new_sessions(&lab, before);
        std::fs::write(pki.path(file), &good[file]).unwrap();
    }
    dump(&lab, &pki, REMOTE, "SB_Global", &[]).unwrap();

    // A new certificate without its key yet is not read.
    let renewed = Authority::open(&pki.0, "ovn-ca").unwrap().issue("renewed", "ovn", None, &[], &[]).unwrap();
    let before = connections(&lab);
    pki.replace("ovn.crt", std::fs::read(renewed.certificate).unwrap());
    reconnect(&lab);
    await_new_sessions(&lab, before);
    let before = connections(&lab);
    pki.replace("ovn.key", std::fs::read(renewed.key).unwrap());
    reconnect(&lab);
    await_new_sessions(&lab, before);
    dump(&lab, &pki, REMOTE, "SB_Global", &[]).unwrap();
    assert_eq!(processes(&lab), processes_before);
}

/// `lessons.md` 15: a certificate that expires, all sessions end, and programs recover with new files, without a restart.
#[test]
fn an_expired_certificate_is_replaced_without_restarts() {
    let lab = start("pki-expired");
    let pki = Pki::of(&lab);
    let processes_before = processes(&lab);
    let before = connections(&lab);
    let expired = Authority::open(&pki.0, "ovn-ca").unwrap().issue_expired("expired", "ovn").unwrap();
    pki.replace("ovn.crt", std::fs::read(expired.certificate).unwrap());
    pki.replace("ovn.key", std::fs::read(expired.key).unwrap());
    reconnect(&lab);
    // The client refuses the server's certificate, and tells it why.
    until("the server's log names the reason", || {
        if lab.log("sb").unwrap().contains("certificate expired") { Ok(()) } else { Err("it does not".to_owned()) }
    });
    let refused = dump(&lab, &pki, REMOTE, "SB_Global", &[]).unwrap_err();
    assert!(refused.contains("xpired"), "{refused}");
    assert_eq!(connections(&lab), before, "nobody accepts an expired certificate");
    // The CA has expired during the suspend, too, so there is no overlap.
    let renewed = create(&pki.path("renewed"), "renewed-ca");
    pki.replace("ca.crt", renewed.read("ca.crt"));
    pki.replace_identity(&renewed);
    await_new_sessions(&lab, before);
    dump(&lab, &pki, REMOTE, "SB_Global", &[]).unwrap();
    assert_eq!(processes(&lab), processes_before);
}

/// Clocks of nodes may be behind: OpenSSL accepts what the signer issues an hour before it was issued. Two CAs with one name in one
/// bundle are told apart by their keys.
#[test]
fn openssl_accepts_the_signers_certificates_on_slow_clocks_and_beside_cas_of_the_same_name() {
    let lab = Lab::start(LabSpec::for_test("pki-openssl").unwrap()).unwrap();
    let control = lab.machine("control").unwrap();
    let now = std::time::SystemTime::now();
    let policy = pki::Policy::default();
    let authority = pki::create_authority(&policy, now.try_into().unwrap()).unwrap();
    let other = pki::create_authority(&policy, now.try_into().unwrap()).unwrap();
    assert_ne!(authority.certificate.subject, other.certificate.subject);
    let leaf = pki::issue_leaf(&authority, &policy, now.try_into().unwrap()).unwrap();
    let write = |file: &str, text: &str| control.run_with_input(&["tee", file], text).unwrap();
    write("/run/leaf.crt", &leaf.certificate.pem());
    write("/run/own.crt", &authority.certificate.pem());
    write("/run/both.crt", &format!("{}{}", other.certificate.pem(), authority.certificate.pem()));
    write("/run/other.crt", &other.certificate.pem());
    let seconds = i64::try_from(now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let verify = |bundle: &str, at: i64| {
        let at = at.to_string();
        let words = ["openssl", "verify", "-purpose", "sslserver", "-attime", &at, "-CAfile", bundle, "/run/leaf.crt"];
        control.run(&words).map_err(|error| error.to_string())
    };
    verify("/run/both.crt", seconds).unwrap();
    verify("/run/own.crt", seconds - 3500).unwrap();
    for (bundle, at) in
        [("/run/other.crt", seconds), ("/run/own.crt", seconds - 3700), ("/run/own.crt", seconds + 181 * 24 * 3600)]
    {
        verify(bundle, at).unwrap_err();
    }
}
