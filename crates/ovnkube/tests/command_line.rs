//! The command line: help, version, completions, usage errors.

mod ovnkube;

use std::io::Read as _;
use std::process::{Command, Stdio};

use ovnkube::run;

#[test]
fn version_shows_the_commit() {
    let long = run(&["--version"], &[]);
    let verb = run(&["version"], &[]);
    assert_eq!(long.stdout, verb.stdout);
    assert!(verb.stdout.starts_with(concat!("ovnkube ", env!("CARGO_PKG_VERSION"), " (commit ")));

    let json = run(&["version", "-o", "json"], &[]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    let commit = json["commit"].as_str().unwrap();
    assert!(!commit.is_empty());
    assert!(verb.stdout.contains(&format!("(commit {commit})")));
}

#[test]
fn completions_list_commands_and_settings() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell], &[]);
        assert_eq!(script.status, Some(0), "{shell}");
        for word in ["log-level", "metrics-bind-address", "livez"] {
            // These two shells' scripts do not list argument values.
            if word == "livez" && ["elvish", "powershell"].contains(&shell) {
                continue;
            }
            assert!(script.stdout.contains(word), "{shell} lacks {word}");
        }
    }
}

#[test]
fn help_shows_examples_and_exit_statuses() {
    for arguments in [
        ["--help"].as_slice(),
        &["health", "--help"],
        &["log-level", "--help"],
        &["ovsdb", "--help"],
        &["ovsdb", "dump", "--help"],
        &["ovsdb", "watch", "--help"],
        &["ovsdb", "transact", "--help"],
        &["plan", "--help"],
        &["db", "serve", "--help"],
        &["db", "relay", "--help"],
        &["db", "status", "--help"],
        &["db", "backup", "--help"],
        &["db", "restore", "--help"],
        &["db", "replace-member", "--help"],
        &["db", "rebuild", "--help"],
        &["bridge", "check", "--help"],
        &["bridge", "render", "--help"],
        &["bridge", "default", "--help"],
        &["pki", "serve", "--help"],
        &["pki", "status", "--help"],
        &["pki", "rotate", "--help"],
        &["pki", "revoke", "--help"],
    ] {
        let help = run(arguments, &[]);
        assert_eq!(help.status, Some(0));
        for part in ["Examples:", "Exit status: 0", "Global options:", "OVNKUBE_LOGGING_LEVEL"] {
            assert!(help.stdout.contains(part), "{arguments:?} lacks {part}:\n{}", help.stdout);
        }
    }
}

#[test]
fn usage_errors_are_one_line_with_a_hint_and_status_2() {
    for (arguments, names) in [
        (["verzion"].as_slice(), "'version'"),
        (&["health", "--adress", "x"], "--address"),
        (&["config", "show", "-o", "yaml"], "yaml"),
        (&["completions", "tcsh"], "tcsh"),
    ] {
        let outcome = run(arguments, &[]);
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        assert!(outcome.stderr.starts_with("error: "), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("hint: "), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(names), "{}", outcome.stderr);
        assert_eq!(outcome.stdout, "");
    }
}

#[test]
fn a_database_member_must_be_named_and_one_of_its_peers() {
    let serve = ["db", "serve", "nb", "--peers", "192.0.2.1,192.0.2.2"];
    let unnamed = run(&serve, &[]);
    assert_eq!(unnamed.status, Some(2), "{}", unnamed.stderr);
    assert!(unnamed.stderr.contains("--host <HOST>"), "{}", unnamed.stderr);
    let other = run(&[&serve[..], &["--host", "192.0.2.3"]].concat(), &[]);
    assert_eq!(other.status, Some(2), "{}", other.stderr);
    for part in ["does not contain --host 192.0.2.3", "hint: list all members, this one included"] {
        assert!(other.stderr.contains(part), "{}", other.stderr);
    }
}

#[test]
fn a_closed_stdout_pipe_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    assert_eq!(stderr, "");
}

#[test]
fn a_closed_stderr_pipe_does_not_change_the_exit_status() {
    let broken = ovnkube::file("closed-stderr.conf", b"rubbish!\n");
    for arguments in [
        ["nonsense"].as_slice(),
        &["config", "check", &broken],
        &["health", "--address", "127.0.0.1:1"],
        &["db", "status", "foo"],
        &["plan", "-f", "/nonexistent"],
    ] {
        // The reader is gone before the first write.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
            .args(arguments)
            .env_clear()
            .stdout(Stdio::null())
            .stderr(writer)
            .status()
            .unwrap();
        let open = run(arguments, &[]);
        assert!(!open.stderr.is_empty(), "{arguments:?}");
        assert_eq!(closed.code(), open.status, "{arguments:?}");
    }
}

#[test]
fn a_failed_write_to_stdout_is_reported() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ovnkube")).arg("version").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: cannot write to stdout: "));
}
