//! Each fault is in effect when the call returns, reports itself, and can be undone.

use std::time::Instant;

use lab::{Databases, Lab, LabSpec, Ovn};

use crate::TIMEOUT;

#[test]
fn a_paused_component_answers_only_after_resume() {
    let lab =
        Lab::start(LabSpec::for_test("pause").unwrap().ovn(Ovn { databases: Databases::Standalone, ..Ovn::default() }))
            .unwrap();
    let paused = lab.pause("nb").unwrap();
    assert!(paused.to_string().contains("SIGSTOP"), "{paused}");
    let answer = lab.machine("control").unwrap().output(&["ovn-nbctl", "--timeout=1", "show"]).unwrap();
    assert!(!answer.status.success());
    paused.resume().unwrap();
    lab.nbctl(&["show"]).unwrap();
}

#[test]
fn a_killed_component_is_reported_and_can_be_restarted() {
    let lab = Lab::start(LabSpec::for_test("kill").unwrap().nodes(1)).unwrap();
    let (sender, ends) = std::sync::mpsc::channel();
    lab.observe(move |component, ended| {
        let _ = sender.send((component.to_owned(), ended.map(String::from)));
    });
    let killed = lab.kill("n1-ovs-vswitchd").unwrap();
    assert!(killed.to_string().contains("n1-ovs-vswitchd"), "{killed}");
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let (name, ended) = ends.recv_timeout(left).expect("the exit of n1-ovs-vswitchd was not reported");
        if let (true, Some(how)) = (name == "n1-ovs-vswitchd", ended) {
            break how;
        }
    };
    assert!(status.contains("SIGKILL"), "{status}");
    assert!(lab.record().component("n1-ovs-vswitchd").unwrap().ended.is_some());
    let again = lab.kill("n1-ovs-vswitchd").unwrap_err().to_string();
    assert!(again.contains("is not running"), "{again}");
    lab.restart("n1-ovs-vswitchd").unwrap();
    lab.node(1)
        .unwrap()
        .run(&["ovs-vsctl", "--timeout=30", "add-br", "again", "--", "set", "bridge", "again", "datapath_type=netdev"])
        .unwrap();
}

#[test]
fn a_partition_separates_only_two_machines() {
    let lab = Lab::start(LabSpec::for_test("cut").unwrap().nodes(2)).unwrap();
    let node = lab.node(1).unwrap();
    let reaches = |address: &str| node.output(&["ping", "-c", "1", "-w", "2", address]).unwrap().status.success();
    node.run(&["ping", "-c", "1", "-w", "30", "10.99.0.12"]).unwrap();
    let cut = lab.partition("n1", "n2").unwrap();
    assert!(!reaches("10.99.0.12"));
    assert!(cut.dropped().unwrap() > 0);
    node.run(&["ping", "-c", "1", "-w", "30", "10.99.0.254"]).unwrap();
    cut.heal().unwrap();
    node.run(&["ping", "-c", "1", "-w", "30", "10.99.0.12"]).unwrap();
    // In one direction: the replies are dropped, so the requests arrived.
    let one_way = lab.partition_one_way("n2", "n1").unwrap();
    assert!(!reaches("10.99.0.12"));
    assert!(one_way.dropped().unwrap() > 0, "{one_way}");
    one_way.heal().unwrap();
    node.run(&["ping", "-c", "1", "-w", "30", "10.99.0.12"]).unwrap();
}

#[test]
fn packet_loss_is_counted_and_partial() {
    let lab = Lab::start(LabSpec::for_test("loss").unwrap().nodes(1)).unwrap();
    let node = lab.node(1).unwrap();
    node.run(&["ping", "-c", "1", "-w", "30", "10.99.0.254"]).unwrap();
    let loss = lab.lose("n1", 30).unwrap();
    node.run(&["ping", "-q", "-c", "40", "-i", "0.01", "-w", "60", "10.99.0.254"]).unwrap();
    assert!(loss.dropped().unwrap() > 0);
    loss.heal().unwrap();
    let all = lab.lose("n1", 100).unwrap();
    assert!(!node.output(&["ping", "-c", "3", "-i", "0.1", "-w", "1", "10.99.0.254"]).unwrap().status.success());
    all.heal().unwrap();
}

#[test]
fn writes_to_a_filled_disk_fail() {
    let lab = Lab::start(LabSpec::for_test("disk").unwrap()).unwrap();
    let outside = lab.machine("outside").unwrap();
    outside.run(&["sh", "-c", "mkdir -p /var/lib/small && echo kept > /var/lib/small/before"]).unwrap();
    let disk = lab.small_disk("outside", "/var/lib/small", 4).unwrap();
    assert_eq!(outside.run(&["cat", "/var/lib/small/before"]).unwrap(), "kept\n");
    let written = disk.fill().unwrap();
    assert!(written > 3 << 20, "{written}");
    let refused = outside.run(&["dd", "if=/dev/zero", "of=/var/lib/small/after", "count=1"]).unwrap_err().to_string();
    assert!(refused.contains("No space left"), "{refused}");
    disk.empty().unwrap();
    outside.run(&["sh", "-c", "echo more > /var/lib/small/after"]).unwrap();
}

#[test]
fn invalid_fault_arguments_are_rejected() {
    let lab = Lab::start(LabSpec::for_test("names").unwrap()).unwrap();
    for (message, word) in [
        (lab.kill("nb-7").unwrap_err().to_string(), "nb-7"),
        (lab.partition("outside", "n9").unwrap_err().to_string(), "n9"),
        (lab.partition("outside", "outside").unwrap_err().to_string(), "from itself"),
        (lab.partition("outside", "fabric").unwrap_err().to_string(), "the switch itself"),
        (lab.lose("outside", 101).unwrap_err().to_string(), "1 to 100"),
        (lab.small_disk("outside", "/", 1).unwrap_err().to_string(), "absolute path"),
        (lab.small_disk("outside", "/var/../", 1).unwrap_err().to_string(), "absolute path"),
        (lab.small_disk("outside", "/var/lib/small", 0).unwrap_err().to_string(), "1 to 1024"),
    ] {
        assert!(!message.contains('\n') && message.contains(word), "{message}");
    }
    assert!(lab.kill("nb-7").unwrap_err().to_string().contains("there are: outside-web"));
}
