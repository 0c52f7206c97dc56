//! Programs under test: how a controller is run in a lab, and what can be done to it.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use lab::{Databases, Kubernetes, Lab, LabSpec, Ovn, Program};

/// Only ends what would hang forever.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Without TLS, which light chassis do not support.
fn standalone() -> Ovn {
    Ovn { databases: Databases::Standalone, tls: false, ..Ovn::default() }
}

fn chassis(lab: &Lab) -> String {
    lab.sbctl(&["--bare", "--columns=name", "list", "Chassis"]).unwrap()
}

/// A program of this workspace that connects to a database over TCP and cleans up on SIGTERM.
#[test]
fn a_program_can_be_started_terminated_killed_paused_and_restarted() {
    let lab = Lab::start(LabSpec::for_test("program").unwrap().ovn(standalone())).unwrap();
    let remote = lab.record().endpoints.southbound_remote.unwrap();
    let program = Program::new("sim", env!("CARGO_BIN_EXE_lab"))
        .arguments(["light-chassis", "--count", "3", "--prefix", "p-", "--remote", &remote])
        .environment("RUST_BACKTRACE", "1")
        .ready_when_logged("are registered");
    lab.run(&program).unwrap();
    assert!(chassis(&lab).contains("p-3"));
    assert!(lab.log("sim").unwrap().contains("p-1 to p-3"));
    let twice = lab.run(&program).unwrap_err().to_string();
    assert!(twice.contains("\"sim\" is already running"), "{twice}");

    let status = lab.terminate("sim", TIMEOUT).unwrap();
    assert!(status.success(), "{status}: {}", lab.log("sim").unwrap());
    assert_eq!(chassis(&lab).trim(), "");

    lab.run(&program).unwrap();
    lab.pause("sim").unwrap().resume().unwrap();
    lab.kill("sim").unwrap();
    assert_eq!(lab.wait_end("sim", TIMEOUT).unwrap().signal(), Some(9));
    assert!(chassis(&lab).contains("p-1"), "a crash deletes nothing");
    lab.restart("sim").unwrap();
    assert!(lab.record().component("sim").unwrap().process.is_alive());
    // The log contains all starts.
    assert_eq!(lab.log("sim").unwrap().matches("are registered").count(), 3);
    let process = lab.record().component("sim").unwrap().process;
    drop(lab);
    assert!(!process.is_alive(), "it outlived its lab");
}

#[test]
fn a_program_finds_kubernetes_and_both_databases_by_its_environment() {
    let spec = LabSpec::for_test("found").unwrap().ovn(standalone()).kubernetes(Kubernetes::default());
    let lab = Lab::start(spec).unwrap();
    let script =
        "set -e; echo $GREETING; kubectl get --raw=/readyz; ovn-nbctl show; ovn-sbctl show; echo all found >&2";
    lab.run(&Program::new("probe", "/bin/sh").arguments(["-c", script]).environment("GREETING", "hello")).unwrap();
    let status = lab.wait_end("probe", TIMEOUT).unwrap();
    let log = lab.log("probe").unwrap();
    assert!(status.success() && log.contains("hello") && log.contains("all found"), "{status}: {log}");
}

#[test]
fn invalid_programs_are_rejected() {
    let lab = Lab::start(LabSpec::for_test("no-program").unwrap()).unwrap();
    for (program, word) in [
        (Program::new("gone", "/no/such/program"), "/no/such/program"),
        (Program::new("directory", "/usr/bin"), "/usr/bin is not a file"),
        (Program::new("../x", "/bin/true"), "invalid program name"),
        (Program::new("far", "/bin/true").on("n7"), "n7"),
        (Program::new("short", "/bin/true").ready_when_logged("never"), "short exited"),
    ] {
        let message = lab.run(&program).unwrap_err().to_string();
        assert!(!message.contains('\n') && message.contains(word), "{message}");
    }
    assert!(lab.terminate("short", TIMEOUT).unwrap_err().to_string().contains("is not running"));
    // Without a ready signal it may exit immediately.
    lab.run(&Program::new("quick", "/bin/false")).unwrap();
    assert_eq!(lab.wait_end("quick", TIMEOUT).unwrap().code(), Some(1));
}

/// A controller may start northd itself: in a lab without one everything else is ready.
#[test]
fn northd_can_be_started_later() {
    let ovn = Ovn { northds: 0, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test("no-northd").unwrap().nodes(1).ovn(ovn)).unwrap();
    assert!(lab.record().component("northd").is_err());
    assert!(chassis(&lab).contains("n1"));
    lab.nbctl(&["ls-add", "sw"]).unwrap();
    assert_eq!(lab.sbctl(&["--bare", "list", "Datapath_Binding"]).unwrap().trim(), "");
    let endpoints = lab.record().endpoints;
    let northd = Program::new("own-northd", "ovn-northd").arguments([
        "-vconsole:info".to_owned(),
        format!("--ovnnb-db={}", endpoints.northbound.unwrap()),
        format!("--ovnsb-db={}", endpoints.southbound.unwrap()),
    ]);
    lab.run(&northd).unwrap();
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    assert!(lab.sbctl(&["list", "Datapath_Binding"]).unwrap().contains("name=sw"));
}
