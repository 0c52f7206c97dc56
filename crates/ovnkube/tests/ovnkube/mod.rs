//! Runs the real binary with a clean environment.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Exit status and output of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Limit of a run, in seconds.
const LIMIT: &str = "60";

/// Runs `ovnkube` with these arguments and nothing but these variables.
pub(crate) fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    // An input that is wrongly accepted would run for ever.
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

/// Writes a file; the name must be unique among the tests.
#[allow(dead_code, reason = "each test file has its own copy of this module")]
pub(crate) fn file(name: &str, contents: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, contents).expect("a file for the test");
    path.to_str().expect("a path in UTF-8").to_owned()
}
