//! `lab exec` and `lab kubectl`: a command of one's own inside the lab.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

use crate::error::{Error, Result};
use crate::record::Record;
use crate::view;

pub(super) fn exec(record: &Record, machine: &str, words: &[String]) -> Result<ExitCode> {
    crate::place::require_root("lab exec")?;
    let machine = view::machine(record, machine)?;
    let shell = [String::from("bash")];
    let mut command = machine.command(if words.is_empty() { &shell } else { words })?;
    if let Some(terminal) = std::env::var_os("TERM") {
        command.env("TERM", terminal);
    }
    let status = machine.spawn(&mut command)?.wait().map_err(Error::io("cannot wait for the command"))?;
    Ok(exit_code(status))
}

/// On the host, so that files named on the command line are the user's own.
pub(super) fn kubectl(record: &Record, arguments: &[String]) -> Result<ExitCode> {
    let (Some(programs), Some(kubeconfig)) = (&record.kubernetes, &record.endpoints.kubeconfig) else {
        return Err(Error::Invalid(format!(
            "lab {:?} has no Kubernetes; start one without --no-kubernetes",
            record.name
        )));
    };
    let status = Command::new(programs.join("kubectl"))
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .status()
        .map_err(Error::io("cannot run kubectl"))?;
    Ok(exit_code(status))
}

/// As a shell says it: the status, or 128 and the signal.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
