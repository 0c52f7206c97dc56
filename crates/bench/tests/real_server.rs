//! The bare client against a real server.

use std::process::Command;

use lab::{Databases, Lab, LabSpec, Ovn};

fn bare(words: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_bare-ovsdb")).args(words).output().expect("bare-ovsdb runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one line of JSON")
}

#[test]
fn the_bare_client_reports_what_it_wrote_and_read() {
    let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test("bare").expect("a spec").ovn(ovn)).expect("a lab");
    let remote = lab.record().endpoints.northbound.expect("a northbound database");
    let said = bare(&["write", "--remote", &remote, "--rows", "1000", "--batch", "64", "--switch", "yardstick"]);
    assert_eq!((said["rows"].as_u64(), said["batches"].as_u64()), (Some(1000), Some(16)));
    assert!(said["rows_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{said}");
    let ports = lab.nbctl(&["lsp-list", "yardstick"]).expect("the switch is there");
    assert_eq!(ports.lines().count(), 1000);
    let said = bare(&["read", "--remote", &remote]);
    assert_eq!(said["rows"].as_u64(), Some(1001), "{said}");
}
