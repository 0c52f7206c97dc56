//! `bare-ovsdb`: the baseline of OVSDB clients; does the least work that is possible.
//!
//! ```text
//!  options ──▶ write: prepared bytes ──▶ socket ──▶ reply, framed and searched for "error"  ┐
//!          └─▶ read:  one monitor    ──▶ socket ──▶ reply, framed and thrown away           ┴─▶ one JSON line
//! ```
//!
//! Standard library only, and no code shared with the rest of the workspace: a baseline must not change
//! with what it measures.

mod framing;
mod options;
mod read;
mod report;
mod session;
mod write;

use std::process::ExitCode;

use options::{Action, HELP};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = options::parse(&arguments).and_then(|action| match action {
        Action::Help => Ok(HELP.to_owned()),
        Action::Write(options) => write::run(&options).map(|report| report.to_string()),
        Action::Read(options) => read::run(&options).map(|report| report.to_string()),
    });
    match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}
