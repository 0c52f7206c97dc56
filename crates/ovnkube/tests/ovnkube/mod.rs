//! Runs the real binary in an environment of its own.

use std::path::PathBuf;
use std::process::{Command, Output};

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The seconds that a run may take.
const LIMIT: &str = "60";

/// Runs `ovnkube` with these arguments and nothing but these variables.
pub(crate) fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    // Something that should be refused and one day is not would run for ever.
    let Output { status, stdout, stderr } = Command::new("timeout")
        .args(["--kill-after=5", LIMIT, env!("CARGO_BIN_EXE_ovnkube")])
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .expect("the binary runs");
    let outcome = Outcome {
        status: status.code(),
        stdout: String::from_utf8(stdout).expect("text on stdout"),
        stderr: String::from_utf8(stderr).expect("text on stderr"),
    };
    assert!(!matches!(outcome.status, Some(124 | 137)), "{arguments:?} ran longer than {LIMIT} s: {outcome:?}");
    outcome
}

/// A file with these contents, under a name that no other test uses.
#[allow(dead_code, reason = "each test file has its own copy of this module")]
pub(crate) fn file(name: &str, contents: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, contents).expect("a file for the test");
    path.to_str().expect("a path in UTF-8").to_owned()
}
