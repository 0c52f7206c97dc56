//! The `lab` command; see `lab --help` and docs/lab.md.

fn main() -> std::process::ExitCode {
    lab::cli::main()
}
