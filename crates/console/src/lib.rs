//! Output of commands: aligned tables, JSON, and no error if the reader closes the pipe.
//!
//! rows ──▶ [`table::render`] ──▶ text ──▶ [`print()`] ──▶ stdout ◀── [`print_json`] ◀── any value
//! one line ──▶ [`eprint_line`] ──▶ stderr

pub mod table;

use std::fmt;
use std::io::{self, Write as _};

/// Writes to stdout. A closed pipe (`… | head -1`) is not an error.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to stdout: {error}"))),
    }
}

/// Writes a value to stdout as JSON, with a final newline.
pub fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Writes a line to stderr. Unlike `eprintln!`, it does not panic if stderr is closed (`… 2>&1 | head -1`): a failure to
/// report a failure must not change the exit status.
pub fn eprint_line(line: fmt::Arguments<'_>) {
    // One write: lines of several processes are not mixed.
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}
