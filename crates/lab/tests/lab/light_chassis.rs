//! Light chassis with real databases and a real northd, for which they look like ovn-controllers.

use std::time::{Duration, Instant};

use lab::{ChassisSpec, Database, Databases, Lab, LabSpec, LightChassis, Ovn};

/// Only ends what would hang forever.
const TIMEOUT: Duration = Duration::from_secs(90);

fn start(purpose: &str, databases: Databases, count: u32) -> (Lab, LightChassis) {
    let ovn = Ovn { databases, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test(purpose).unwrap().ovn(ovn)).unwrap();
    let chassis = lab.light_chassis(&ChassisSpec::numbered("lc-", count)).unwrap();
    (lab, chassis)
}

/// Adds ports `from..=to` to switch `sw` in one transaction, spread over `chassis` chassis.
fn add_ports(lab: &Lab, from: u32, to: u32, chassis: u32) {
    let mut words: Vec<String> = ["--may-exist", "ls-add", "sw"].map(String::from).to_vec();
    for port in from..=to {
        let host = format!("options:requested-chassis=lc-{}", port % chassis + 1);
        let name = format!("default_pod-{port}");
        words
            .extend(["--", "lsp-add", "sw", &name, "--", "set", "Logical_Switch_Port", &name, &host].map(String::from));
    }
    lab.nbctl(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
}

/// The number of rows that a `find` of ovn-nbctl or ovn-sbctl printed.
fn rows(found: &str) -> usize {
    found.lines().filter(|line| !line.trim().is_empty()).count()
}

fn ports_up(lab: &Lab) -> usize {
    rows(&lab.nbctl(&["--bare", "--columns=name", "find", "Logical_Switch_Port", "up=true"]).unwrap())
}

fn chassis_rows(lab: &Lab, table: &str) -> usize {
    rows(&lab.sbctl(&["--bare", "--columns=_uuid", "list", table]).unwrap())
}

/// The UUID of a chassis' row; empty if it has none.
fn row_of(lab: &Lab, chassis: &str) -> String {
    let found = lab.sbctl(&["--bare", "--columns=_uuid", "find", "Chassis", &format!("name={chassis}")]).unwrap();
    found.trim().to_owned()
}

/// An integer column of NB_Global.
fn number(lab: &Lab, column: &str) -> i64 {
    lab.nbctl(&["get", "NB_Global", ".", column]).unwrap().trim().parse().unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {TIMEOUT:?}");
    }
}

fn ports_of_two_hundred_chassis_come_up(purpose: &str, databases: Databases) {
    let (lab, chassis) = start(purpose, databases, 200);
    for table in ["Chassis", "Chassis_Private", "Encap"] {
        assert_eq!(chassis_rows(&lab, table), 200, "{table}");
    }
    let before = chassis.transactions();
    add_ports(&lab, 1, 400, 200);
    chassis.wait_claimed(400, TIMEOUT).unwrap();
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    assert_eq!(ports_up(&lab), 400);
    assert_eq!(number(&lab, "hv_cfg"), number(&lab, "nb_cfg"));
    let sent = chassis.transactions() - before;
    assert!(sent < 40, "{sent} transactions for 400 ports are not batched");
    // A deleted port does not count any more.
    lab.nbctl(&["lsp-del", "default_pod-1"]).unwrap();
    chassis.wait_claimed(399, TIMEOUT).unwrap();
    chassis.stop().unwrap();
    for table in ["Chassis", "Chassis_Private", "Encap"] {
        assert_eq!(chassis_rows(&lab, table), 0, "{table}");
    }
    // Without a chassis a port is not up.
    lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    eventually("ports go down", || ports_up(&lab) == 0);
}

#[test]
fn four_hundred_ports_on_two_hundred_chassis_come_up() {
    ports_of_two_hundred_chassis_come_up("light", Databases::Standalone);
}

#[test]
fn four_hundred_ports_on_two_hundred_chassis_come_up_on_raft() {
    ports_of_two_hundred_chassis_come_up("light-raft", Databases::Raft);
}

#[test]
fn a_paused_chassis_claims_nothing_and_delays_hv_cfg() {
    let (lab, chassis) = start("light-pause", Databases::Standalone, 20);
    add_ports(&lab, 1, 20, 20);
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    chassis.pause("lc-3").unwrap();
    // One more port for each, including the paused one.
    add_ports(&lab, 21, 40, 20);
    lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    let version = number(&lab, "nb_cfg");
    chassis.wait_claimed(39, TIMEOUT).unwrap();
    // All acknowledge in one transaction, so that one of them is enough.
    lab.sbctl(&["wait-until", "Chassis_Private", "lc-4", &format!("nb_cfg={version}")]).unwrap();
    assert!(number(&lab, "hv_cfg") < version);
    assert_eq!(chassis.claimed(), 39);
    chassis.resume("lc-3").unwrap();
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    assert_eq!(ports_up(&lab), 40);
    chassis.wait_claimed(40, TIMEOUT).unwrap();
}

#[test]
fn a_deleted_chassis_is_restored_with_its_ports() {
    let (lab, chassis) = start("light-deleted", Databases::Standalone, 20);
    add_ports(&lab, 1, 20, 20);
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    // Once with Chassis_Private, once the Chassis row alone.
    for (name, port, delete) in [
        ("lc-7", "default_pod-6", ["chassis-del", "lc-7", ""]),
        ("lc-8", "default_pod-7", ["destroy", "Chassis", "lc-8"]),
    ] {
        let before = row_of(&lab, name);
        let words: Vec<&str> = delete.into_iter().filter(|word| !word.is_empty()).collect();
        lab.sbctl(&words).unwrap();
        eventually("the chassis is back", || ![String::new(), before.clone()].contains(&row_of(&lab, name)));
        let bound = format!("chassis={}", row_of(&lab, name));
        lab.sbctl(&["wait-until", "Port_Binding", port, &bound, "up=true"]).unwrap();
        lab.nbctl(&["wait-until", "Logical_Switch_Port", port, "up=true"]).unwrap();
    }
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    chassis.wait_claimed(20, TIMEOUT).unwrap();
    assert_eq!(ports_up(&lab), 20);
}

#[test]
fn nodes_join_and_leave_and_ports_move_between_them() {
    let (lab, chassis) = start("light-nodes", Databases::Standalone, 2);
    add_ports(&lab, 1, 4, 2);
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    chassis.wait_claimed(4, TIMEOUT).unwrap();
    // Requested by host name, before that node exists.
    let port = ["lsp-add", "sw", "ns_late", "--", "set", "Logical_Switch_Port", "ns_late"];
    lab.nbctl(&[&port[..], &["options:requested-chassis=host-9"]].concat()).unwrap();
    let nine = ChassisSpec { name: "lc-9".into(), hostname: "host-9".into(), encap_ip: "fd00::9".parse().unwrap() };
    chassis.add(std::slice::from_ref(&nine)).unwrap();
    chassis.wait_claimed(5, TIMEOUT).unwrap();
    assert!(chassis.add(&[nine]).unwrap_err().to_string().contains("lc-9"));

    // A port moves to another light chassis, and then to an unknown one.
    lab.nbctl(&["set", "Logical_Switch_Port", "default_pod-1", "options:requested-chassis=lc-9"]).unwrap();
    let bound = format!("chassis={}", row_of(&lab, "lc-9"));
    lab.sbctl(&["wait-until", "Port_Binding", "default_pod-1", &bound]).unwrap();
    lab.nbctl(&["set", "Logical_Switch_Port", "default_pod-1", "options:requested-chassis=stranger"]).unwrap();
    lab.sbctl(&["wait-until", "Port_Binding", "default_pod-1", "chassis=[]", "up=false"]).unwrap();
    chassis.wait_claimed(4, TIMEOUT).unwrap();

    chassis.remove("lc-9").unwrap();
    chassis.wait_claimed(3, TIMEOUT).unwrap();
    assert_eq!(row_of(&lab, "lc-9"), "");
    for refused in [chassis.remove("lc-9"), chassis.pause("lc-9"), chassis.resume("lc-9")] {
        assert!(refused.unwrap_err().to_string().contains("lc-9"));
    }
    // A removed chassis delays nothing.
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
}

#[test]
fn a_gateway_router_is_claimed_by_its_chassis() {
    let (lab, chassis) = start("light-gateway", Databases::Standalone, 2);
    lab.nbctl(&["lr-add", "gr", "--", "set", "Logical_Router", "gr", "options:chassis=lc-2"]).unwrap();
    lab.nbctl(&["lrp-add", "gr", "gr-port", "0a:58:00:00:00:01", "10.1.0.1/24", "--", "ls-add", "sw"]).unwrap();
    let port = ["lsp-add", "sw", "sw-gr", "--", "set", "Logical_Switch_Port", "sw-gr", "type=router"];
    lab.nbctl(&[&port[..], &["options:router-port=gr-port"]].concat()).unwrap();
    let bound = format!("chassis={}", row_of(&lab, "lc-2"));
    for port in ["gr-port", "sw-gr"] {
        lab.sbctl(&["wait-until", "Port_Binding", port, "type=l3gateway", &bound]).unwrap();
    }
    chassis.wait_claimed(2, TIMEOUT).unwrap();
}

#[test]
fn all_ports_are_claimed_after_a_leader_change() {
    let (lab, chassis) = start("light-leader", Databases::Raft, 20);
    add_ports(&lab, 1, 20, 20);
    chassis.wait_claimed(20, TIMEOUT).unwrap();
    let leader = lab.raft_leader(Database::Southbound).unwrap();
    lab.kill(&leader).unwrap();
    add_ports(&lab, 21, 40, 20);
    chassis.wait_claimed(40, TIMEOUT).unwrap();
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    assert_eq!(ports_up(&lab), 40);
}

#[test]
fn rows_of_a_crashed_run_are_replaced() {
    let (lab, chassis) = start("light-again", Databases::Standalone, 5);
    add_ports(&lab, 1, 5, 5);
    chassis.wait_claimed(5, TIMEOUT).unwrap();
    let before = row_of(&lab, "lc-1");
    drop(chassis);
    assert_eq!(row_of(&lab, "lc-1"), before, "a crash deletes nothing");
    let mut specs = ChassisSpec::numbered("lc-", 5);
    specs[0].hostname = "another".into();
    let chassis = lab.light_chassis(&specs).unwrap();
    chassis.wait_claimed(5, TIMEOUT).unwrap();
    assert_ne!(row_of(&lab, "lc-1"), before);
    assert_eq!(chassis_rows(&lab, "Encap"), 5);
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    // Chassis with addresses that are in use are rejected.
    let clash = lab.light_chassis(&ChassisSpec::numbered("other-", 2)).unwrap_err().to_string();
    assert!(clash.contains("2 of 2") && clash.contains("10.128.0."), "{clash}");
}
