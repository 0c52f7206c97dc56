//! Embeds the commit of the build.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=OVNKUBE_COMMIT");
    // An image build has no checkout and passes the commit.
    let commit = std::env::var("OVNKUBE_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty())
        .or_else(commit_of_checkout)
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=OVNKUBE_COMMIT={commit}");
    rerun_when_checkout_moves();
}

fn commit_of_checkout() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}-dirty") })
}

/// HEAD changes with the branch, the directory of branches with each commit, whether a branch has its own
/// file, is packed, or has no commit yet. Missing paths are skipped: cargo would rerun this at every build.
fn rerun_when_checkout_moves() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["HEAD", "packed-refs", "refs/heads"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        // Other processes may use the checkout: do not lock the index.
        .arg("--no-optional-locks")
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
