//! The lab's name server: a changed record is seen at once, on machines and by Open vSwitch's own resolver.

use lab::{Lab, LabSpec, ZONE};

#[test]
fn records_change_at_once() {
    let lab = Lab::start(LabSpec::for_test("names").unwrap()).unwrap();
    let outside = lab.machine("outside").unwrap();
    let name = format!("db-1.{ZONE}");
    let lookup = || outside.run(&["getent", "ahostsv4", &name]).map(|text| text.split(' ').next().unwrap().to_owned());
    assert!(lookup().is_err());
    lab.set_name(&name, &["192.0.2.7".parse().unwrap()]).unwrap();
    assert_eq!(lookup().unwrap(), "192.0.2.7");
    lab.set_name(&name, &["192.0.2.8".parse().unwrap()]).unwrap();
    assert_eq!(lookup().unwrap(), "192.0.2.8");
    lab.set_name(&name, &[]).unwrap();
    assert!(lookup().is_err());
    let refused = lab.set_name("db-1.example", &[]).unwrap_err().to_string();
    assert!(refused.contains(ZONE), "{refused}");
}
