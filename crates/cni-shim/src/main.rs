//! `ovn-k8s-cni-overlay`: see the library.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = cni_shim::run(std::env::vars_os(), std::io::stdin(), Path::new(cni_shim::SOCKET), cni_shim::TIMEOUT);
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(outcome.output.as_bytes()).and_then(|()| stdout.flush());
    if outcome.success && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
