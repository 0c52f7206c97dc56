//! Contenders in their own processes: the bare client, this program's load mode, and OVN's tools.

use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use lab::Machine;
use serde_json::Value;

/// Runs the bare client and returns its report.
pub(crate) fn bare(words: &[&str]) -> Result<Value> {
    let program = std::env::current_exe()?.with_file_name("bare-ovsdb");
    let output = Command::new(&program).args(words).output().with_context(|| {
        format!("cannot run {}; build it with `cargo build --release --package bench`", program.display())
    })?;
    if !output.status.success() {
        bail!("bare-ovsdb failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A number of a child's report.
pub(crate) fn number(said: &Value, key: &str) -> Result<f64> {
    said[key].as_f64().with_context(|| format!("bare-ovsdb did not report {key}: {said}"))
}

/// The shell's own count of a child's CPU time: user and system, of its whole life, to the millisecond. The same for
/// all contenders.
fn timed(command: &str) -> [String; 3] {
    let script = format!("TIMEFORMAT='cpu %3U %3S'; time {command}");
    ["bash".to_owned(), "-c".to_owned(), script]
}

/// Runs a shell command on this machine; returns its output and CPU seconds.
pub(crate) fn cpu_here(command: &str) -> Result<(String, f64)> {
    let [shell, flag, script] = timed(command);
    read(command, &Command::new(shell).args([flag, script]).output()?)
}

/// The same on a machine of the lab.
pub(crate) fn cpu_on(machine: &Machine, command: &str) -> Result<(String, f64)> {
    let words = timed(command);
    read(command, &machine.output(&words.each_ref().map(String::as_str))?)
}

fn read(command: &str, output: &Output) -> Result<(String, f64)> {
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{command} failed: {}", errors.trim());
    }
    let line = errors.lines().rev().find_map(|line| line.strip_prefix("cpu "));
    let parts = line.into_iter().flat_map(str::split_whitespace).map(str::parse::<f64>);
    let parts: Vec<f64> = parts.collect::<Result<_, _>>()?;
    let [user, system] = parts.as_slice() else {
        bail!("the shell did not report the CPU time of {command}: {errors}")
    };
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), user + system))
}
