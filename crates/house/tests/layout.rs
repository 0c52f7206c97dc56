//! The layout check can fail: a small sound workspace is spoilt in one way after the other.

mod support;

use support::Sandbox;

fn sound() -> Sandbox {
    let sandbox = Sandbox::empty();
    sandbox.write(
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n[workspace.package]\nlicense = \"Apache-2.0\"\n\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n",
    );
    sandbox.write("house.toml", "targets = [\"x86_64-unknown-linux-gnu\"]\n");
    sandbox.write(
        "crates/room/Cargo.toml",
        "[package]\nname = \"room\"\nversion = \"0.1.0\"\nedition = \"2024\"\nlicense.workspace = true\n\n[lints]\nworkspace = true\n",
    );
    sandbox.write("crates/room/src/lib.rs", "//! A room.\n");
    sandbox.write("crates/room/src/main.rs", "//! Its door.\nfn main() {}\n");
    sandbox.write("docs/architecture.md", "# The house\n\n`room` is all there is.\n");
    sandbox.refresh_lock_file();
    sandbox
}

/// Writes the file into a sound workspace and returns what `house layout` says of it.
fn complaint(file: &str, text: &str) -> String {
    let sandbox = sound();
    sandbox.write(file, text);
    let (ok, said) = sandbox.house(&["layout"]);
    assert!(!ok, "{said}");
    assert_eq!(said.matches("error[layout]").count(), 1, "one spoilt thing, one finding: {said}");
    assert!(said.contains("remedy: "), "{said}");
    said
}

#[test]
fn a_sound_workspace_passes_every_check() {
    let (ok, said) = sound().house(&[]);
    assert!(ok && said.contains("house: purity + layout ok"), "{said}");
}

#[test]
fn long_files_are_found() {
    let said = complaint("crates/room/src/long.rs", &"//\n".repeat(501));
    assert!(said.contains("crates/room/src/long.rs: has 501 lines, 500 at most"), "{said}");
    let said = complaint("crates/room/src/main.rs", &format!("//! Door.\nfn main() {{}}\n{}", "//\n".repeat(39)));
    assert!(said.contains("crates/room/src/main.rs: has 41 lines, 40 at most"), "{said}");
}

#[test]
fn a_crate_without_opening_lints_or_license_is_found() {
    let said = complaint("crates/room/src/lib.rs", "// A room.\n");
    assert!(said.contains("crates/room/src/lib.rs: does not state its purpose"), "{said}");
    let said = complaint("crates/room/src/bin/side-door.rs", "fn main() {}\n");
    assert!(said.contains("side-door.rs: does not state its purpose"), "{said}");

    let package = "[package]\nname = \"room\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    let said = complaint("crates/room/Cargo.toml", &format!("{package}license.workspace = true\n"));
    assert!(said.contains("room: does not use the workspace's lints"), "{said}");
    let said = complaint("crates/room/Cargo.toml", &format!("{package}[lints]\nworkspace = true\n"));
    assert!(said.contains("room: does not use the workspace's license"), "{said}");
}

#[test]
fn a_crate_that_the_architecture_forgets_is_found() {
    let said = complaint("docs/architecture.md", "# The house\n\nRoomy.\n");
    assert!(said.contains("docs/architecture.md: does not mention the crate room"), "{said}");
}

#[test]
fn git_says_which_files_count() {
    let sandbox = sound();
    let git = std::process::Command::new("git").args(["init", "--quiet"]).current_dir(&sandbox.root).status();
    assert!(git.expect("git runs").success());
    sandbox.write(".gitignore", "/scratch\n");
    sandbox.write("scratch/long.rs", &"//\n".repeat(501));
    let (ok, said) = sandbox.house(&["layout"]);
    assert!(ok, "an ignored file does not count: {said}");

    sandbox.write("new/long.rs", &"//\n".repeat(501));
    let (ok, said) = sandbox.house(&["layout", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert!(!ok, "a file that is not yet added does count: {said}");
    assert_eq!(report["ok"], false);
    assert_eq!(report["findings"][0]["place"], "new/long.rs");
}
