//! Dropping a lab removes everything.

use crate::remains;

#[test]
fn a_dropped_lab_leaves_nothing_and_neither_does_a_panic() {
    for panics in [false, true] {
        let (sender, receiver) = std::sync::mpsc::channel();
        let outcome = std::thread::spawn(move || {
            let lab = lab::Lab::start(lab::LabSpec::for_test("drop").unwrap().nodes(1)).unwrap();
            sender.send(lab.record()).unwrap();
            assert!(!panics, "on purpose: the lab must be removed nevertheless");
        })
        .join();
        assert_eq!(outcome.is_err(), panics);
        let record = receiver.recv().unwrap();
        assert_eq!(remains::of(&record, &remains::dir(&record.name)), Vec::<String>::new());
        let kept = remains::dir(&record.name).parent().unwrap().with_file_name("failed").join(&record.name);
        assert_eq!(kept.join("n1-ovs-vswitchd.log").exists(), panics, "logs are kept only for a failed test");
        let _ = std::fs::remove_dir_all(kept);
    }
}

#[test]
fn background_processes_of_commands_do_not_block() {
    let lab = lab::Lab::start(lab::LabSpec::for_test("left").unwrap()).unwrap();
    let control = lab.machine("control").unwrap();
    let second = std::time::Duration::from_secs(1);
    let error = control.run_within(second, &["sh", "-c", "setsid sleep 1000 &"]).unwrap_err().to_string();
    assert!(error.contains("its output did not end") && error.contains("on control"), "{error}");
    // The kernel keeps a machine until every command on it has been waited for; nothing waits for this one.
    std::mem::drop(control.spawn(&mut control.command(&["true"]).unwrap()).unwrap());
    let record = lab.record();
    drop(lab);
    assert_eq!(record.components.iter().filter(|component| component.process.is_alive()).count(), 0);
    assert!(!remains::dir(&record.name).exists());
}
