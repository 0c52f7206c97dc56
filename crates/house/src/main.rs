//! `house`: runs the workspace checks. Exit code 0: all pass; 1: a check failed; 2: the checks could not run.

use std::process::ExitCode;

use clap::Parser;
use house::{Cli, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(report) => {
            print!("{}", report.render(cli.output));
            if report.ok() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
