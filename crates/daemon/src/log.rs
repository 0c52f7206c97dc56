//! Copies a daemon's log lines into ours, with their levels.

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::ChildStderr;
use tracing::Level;

use crate::warnings::Warnings;

/// Copies lines until the daemon closes its stderr; `warnings` gets each warning and error.
pub(crate) async fn copy(name: &'static str, stderr: ChildStderr, warnings: Warnings) {
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line);
        let (level, text) = parse(&line);
        if level <= Level::WARN {
            warnings.push(text.clone());
        }
        match level {
            Level::ERROR => tracing::error!(daemon = name, "{text}"),
            Level::WARN => tracing::warn!(daemon = name, "{text}"),
            Level::INFO => tracing::info!(daemon = name, "{text}"),
            _ => tracing::debug!(daemon = name, "{text}"),
        }
    }
}

/// Level and text of a line such as `2026-11-17T10:43:55Z|00031|raft|INFO|term 2: starting election`. A line in another
/// form (an error before logging is set up) is a warning.
fn parse(line: &str) -> (Level, String) {
    let mut parts = line.splitn(5, '|');
    let (_, _, module, level, text) = (parts.next(), parts.next(), parts.next(), parts.next(), parts.next());
    let (Some(module), Some(level), Some(text)) = (module, level, text) else { return (Level::WARN, line.to_owned()) };
    let level = match level {
        "EMER" | "ERR" => Level::ERROR,
        "WARN" => Level::WARN,
        "INFO" => Level::INFO,
        "DBG" => Level::DEBUG,
        _ => return (Level::WARN, line.to_owned()),
    };
    (level, format!("{module}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_level() {
        let line = "2026-11-17T10:43:55.473Z|00030|raft|INFO|term 2: elected leader | by 2+ of 3 servers";
        assert_eq!(parse(line), (Level::INFO, "raft: term 2: elected leader | by 2+ of 3 servers".into()));
        assert_eq!(parse("x|1|raft|ERR|bad").0, Level::ERROR);
        assert_eq!(parse("ovsdb-server: I/O error"), (Level::WARN, "ovsdb-server: I/O error".into()));
    }
}
