//! `lab`: a cluster of real components on this machine, for people.

fn main() -> std::process::ExitCode {
    lab::cli::main()
}
