//! docs/lessons.md names tests that exist.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

/// Tests are written as `name`, `name` (`file.rs`); a file without `crates/` is in this directory.
#[test]
fn every_test_named_in_the_lessons_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Vec::new();
    let mut found = 0;
    for code in include_str!("../../../docs/lessons.md").split('`').skip(1).step_by(2) {
        if code.ends_with(".rs") {
            let directory = if code.starts_with("crates/") { "../.." } else { "tests" };
            let path = root.join(directory).join(code);
            let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            for name in names.drain(..) {
                assert!(source.contains(&format!("fn {name}(")), "{code} has no test {name}");
                found += 1;
            }
        } else if code.matches('_').count() > 1 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            names.push(code);
        }
    }
    assert!(names.is_empty(), "no file is given for {names:?}");
    assert!(found > 30, "only {found} tests were found");
}
