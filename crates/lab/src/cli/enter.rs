//! `lab exec` and `lab kubectl`: run a command inside the lab.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

use crate::error::{Error, Result};
use crate::inspect;
use crate::record::Record;

pub(super) fn exec(record: &Record, machine: &str, args: &[String]) -> Result<ExitCode> {
    crate::directories::require_root("lab exec")?;
    let machine = inspect::machine(record, machine)?;
    let shell = [String::from("bash")];
    let mut command = machine.command(if args.is_empty() { &shell } else { args })?;
    if let Some(terminal) = std::env::var_os("TERM") {
        command.env("TERM", terminal);
    }
    let status = machine.spawn(&mut command)?.wait().map_err(Error::io("cannot wait for the command"))?;
    Ok(exit_code(status))
}

/// On the host, so that file names on the command line refer to the user's files.
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

/// As shells report it: the status, or 128 plus the signal.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
