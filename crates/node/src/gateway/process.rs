//! Runs `ovs-ofctl` and `nft` to completion.

use std::io;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// It cannot be started, or its output cannot be read.
    #[error("cannot run {program}: {error}; install it on this host")]
    Start { program: String, error: io::Error },
    /// It ended with an exit status other than 0.
    #[error("{program} {arguments}: {stderr}{}", hint(program, stderr))]
    Failed { program: String, arguments: String, stderr: String },
}

/// ovs-ofctl only says that it cannot connect.
fn hint(program: &str, stderr: &str) -> &'static str {
    let unreachable = ["Connection refused", "No such file or directory"].iter().any(|cause| stderr.contains(cause));
    if program == "ovs-ofctl" && unreachable { "; is ovs-vswitchd running?" } else { "" }
}

/// Runs a program with text on its stdin; returns its stdout. It is killed if the future is dropped.
pub(super) async fn run(program: &str, arguments: &[String], stdin: Option<&str>) -> Result<String, CommandError> {
    let cannot_start = |error: io::Error| CommandError::Start { program: program.to_owned(), error };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(cannot_start)?;
    let (pipe, text) = (child.stdin.take(), stdin.unwrap_or_default());
    let write = async move {
        if let Some(mut pipe) = pipe {
            // If the program ends before it has read everything, its exit status says why.
            let _ = pipe.write_all(text.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    let output = output.map_err(cannot_start)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(CommandError::Failed { program: program.to_owned(), arguments: arguments.join(" "), stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_switch_that_is_down_is_named() {
        let failed = |program: &str, stderr: &str| {
            let (arguments, stderr) = ("dump-flows br-ex".to_owned(), stderr.to_owned());
            CommandError::Failed { program: program.to_owned(), arguments, stderr }.to_string()
        };
        let down = failed("ovs-ofctl", "ovs-ofctl: connecting to unix:br-ex.mgmt (Connection refused)");
        assert!(down.ends_with("(Connection refused); is ovs-vswitchd running?"), "{down}");
        assert_eq!(failed("ovs-ofctl", "bad flow"), "ovs-ofctl dump-flows br-ex: bad flow");
    }

    #[tokio::test]
    async fn stdin_is_passed_and_stdout_returned() {
        // More than a pipe holds, both ways.
        let text = "a line\n".repeat(100_000);
        assert_eq!(run("cat", &[], Some(&text)).await.unwrap(), text);
        assert_eq!(run("cat", &[], None).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_failure_names_the_command_and_its_stderr() {
        let script = arguments(&["-c", "echo one >&2; echo two >&2; exit 3"]);
        let error = run("sh", &script, Some("unread")).await.unwrap_err().to_string();
        assert!(error.starts_with("sh -c ") && error.ends_with(": one; two"), "{error}");
        let error = run("/nonexistent/nft", &[], None).await.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot run /nonexistent/nft: ") && error.ends_with("install it on this host"),
            "{error}"
        );
    }
}
