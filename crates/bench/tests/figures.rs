//! The file of figures that other tools read.

use std::fs;
use std::path::PathBuf;

use bench::{Figure, Goal, write_figures_in};
use serde_json::{Value, json};

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("bench-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    directory
}

#[test]
fn the_file_is_a_list_of_figures() {
    let directory = directory("list");
    let figures = [
        Figure::new("start", 9.5, "s").with_goal(Goal::AtMost(10.0)),
        Figure::new("rate", 100.0, "rows/s").with_goal(Goal::AtLeast(200.0)),
        Figure::new("memory", 12.0, "MiB"),
        Figure::new("lost", f64::NAN, "s"),
    ];
    let path =
        write_figures_in(&directory.join("deep"), "first", &figures).expect("a missed goal does not fail the run");
    assert!(path.ends_with("deep/first.json"));
    let read: Value = serde_json::from_slice(&fs::read(&path).expect("the file")).expect("JSON");
    assert_eq!(
        read,
        json!([
            {"name": "start", "value": 9.5, "unit": "s", "goal": "<= 10", "ok": true},
            {"name": "rate", "value": 100.0, "unit": "rows/s", "goal": ">= 200", "ok": false},
            {"name": "memory", "value": 12.0, "unit": "MiB", "goal": null, "ok": true},
            {"name": "lost", "value": null, "unit": "s", "goal": null, "ok": false},
        ])
    );

    write_figures_in(&directory.join("deep"), "first", &figures[..1]).expect("a second time");
    let read: Value = serde_json::from_slice(&fs::read(&path).expect("the file")).expect("JSON");
    assert_eq!(read.as_array().map(Vec::len), Some(1), "the new list replaces the old");
    let left: Vec<_> = fs::read_dir(directory.join("deep")).expect("the directory").collect();
    assert_eq!(left.len(), 1, "no temporary file is left: {left:?}");
    fs::remove_dir_all(&directory).expect("tidy");
}

#[test]
fn names_that_leave_the_directory_are_rejected() {
    for name in ["", "..", "a/b", "a.json", "a b"] {
        let error = write_figures_in(&directory("names"), name, &[]).expect_err(name).to_string();
        assert!(error.starts_with(&format!("{name:?} is not a file name for figures")), "{error}");
    }
}

#[test]
fn a_directory_that_cannot_be_created_is_named() {
    let blocked = directory("blocked");
    fs::write(&blocked, "a file where the directory should be").expect("a file");
    let error = write_figures_in(&blocked, "x", &[]).expect_err("no directory").to_string();
    assert!(error.contains("x.json") && error.contains("CARGO_TARGET_DIR"), "{error}");
    fs::remove_file(&blocked).expect("tidy");
}
