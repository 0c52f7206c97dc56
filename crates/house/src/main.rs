//! `house`: runs the checks of the workspace. Exit code 0: all hold; 1: one does not; 2: they could not be run.

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
