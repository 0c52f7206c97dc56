//! A lab that goes leaves nothing.

use crate::remains;

#[test]
fn a_dropped_lab_leaves_nothing_and_neither_does_a_panic() {
    for panics in [false, true] {
        let (sender, receiver) = std::sync::mpsc::channel();
        let outcome = std::thread::spawn(move || {
            let lab = lab::Lab::start(lab::LabSpec::for_test("drop").unwrap().nodes(1)).unwrap();
            sender.send(lab.record()).unwrap();
            assert!(!panics, "on purpose: the lab shall be removed all the same");
        })
        .join();
        assert_eq!(outcome.is_err(), panics);
        let record = receiver.recv().unwrap();
        assert_eq!(remains::of(&record, &remains::folder(&record.name)), Vec::<String>::new());
        let kept = remains::folder(&record.name).parent().unwrap().with_file_name("failed").join(&record.name);
        assert_eq!(kept.join("n1-ovs-vswitchd.log").exists(), panics, "logs are kept for a failed test only");
        let _ = std::fs::remove_dir_all(kept);
    }
}
