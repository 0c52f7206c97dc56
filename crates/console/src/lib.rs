//! What our commands show: aligned tables for people, JSON for machines, and no fuss when the reader has gone.
//!
//! rows ──▶ [`table::render`] ──▶ text ──▶ [`print()`] ──▶ stdout ◀── [`print_json`] ◀── any value

pub mod table;

use std::io::{self, Write as _};

/// Writes the text to stdout. A closed pipe (`… | head -1`) is the reader's choice, not an error.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to stdout: {error}"))),
    }
}

/// Writes a value to stdout as JSON, a line break behind it.
pub fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}
