//! What others read: the file of figures.

use std::fs;
use std::path::PathBuf;

use bench::{Figure, Goal, write_figures_in};
use serde_json::{Value, json};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("bench-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[test]
fn the_file_is_a_list_of_figures() {
    let folder = folder("list");
    let figures = [
        Figure::new("start", 9.5, "s").with_goal(Goal::AtMost(10.0)),
        Figure::new("rate", 100.0, "rows/s").with_goal(Goal::AtLeast(200.0)),
        Figure::new("memory", 12.0, "MiB"),
        Figure::new("lost", f64::NAN, "s"),
    ];
    let path = write_figures_in(&folder.join("deep"), "first", &figures).expect("a missed goal does not fail the run");
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

    write_figures_in(&folder.join("deep"), "first", &figures[..1]).expect("a second time");
    let read: Value = serde_json::from_slice(&fs::read(&path).expect("the file")).expect("JSON");
    assert_eq!(read.as_array().map(Vec::len), Some(1), "the new list takes the place of the old");
    let left: Vec<_> = fs::read_dir(folder.join("deep")).expect("the folder").collect();
    assert_eq!(left.len(), 1, "no draft is left behind: {left:?}");
    fs::remove_dir_all(&folder).expect("tidy");
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    for name in ["", "..", "a/b", "a.json", "a b"] {
        let error = write_figures_in(&folder("names"), name, &[]).expect_err(name).to_string();
        assert!(error.starts_with(&format!("{name:?} cannot name a file of figures")), "{error}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let blocked = folder("blocked");
    fs::write(&blocked, "a file where the folder should be").expect("a file");
    let error = write_figures_in(&blocked, "x", &[]).expect_err("no folder").to_string();
    assert!(error.contains("x.json") && error.contains("CARGO_TARGET_DIR"), "{error}");
    fs::remove_file(&blocked).expect("tidy");
}
