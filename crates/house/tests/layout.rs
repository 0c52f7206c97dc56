//! The layout check fails for a small valid workspace that is broken in one way after the other.

mod support;

use support::Sandbox;

fn valid() -> Sandbox {
    let sandbox = Sandbox::empty();
    sandbox.write(
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n[workspace.package]\nlicense = \"Apache-2.0\"\n\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n",
    );
    sandbox.write("house.toml", "targets = [\"x86_64-unknown-linux-gnu\"]\n");
    sandbox.write(
        "crates/sample/Cargo.toml",
        "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2024\"\nlicense.workspace = true\n\n[lints]\nworkspace = true\n",
    );
    sandbox.write("crates/sample/src/lib.rs", "//! A sample.\n");
    sandbox.write("crates/sample/src/main.rs", "//! Its binary.\nfn main() {}\n");
    sandbox.write("docs/architecture.md", "# The house\n\n`sample` is all there is.\n");
    sandbox.refresh_lock_file();
    sandbox
}

/// Writes the file into a valid workspace and returns the output of `house layout`.
fn complaint(file: &str, text: &str) -> String {
    let sandbox = valid();
    sandbox.write(file, text);
    let (ok, said) = sandbox.house(&["layout"]);
    assert!(!ok, "{said}");
    assert_eq!(said.matches("error[layout]").count(), 1, "one error, one finding: {said}");
    assert!(said.contains("remedy: "), "{said}");
    said
}

#[test]
fn a_valid_workspace_passes_every_check() {
    let (ok, said) = valid().house(&[]);
    assert!(ok && said.contains("house: purity + layout ok"), "{said}");
}

#[test]
fn long_files_are_found() {
    let said = complaint("crates/sample/src/long.rs", &"//\n".repeat(501));
    assert!(said.contains("crates/sample/src/long.rs: has 501 lines, 500 at most"), "{said}");
    let said = complaint("crates/sample/src/main.rs", &format!("//! A binary.\nfn main() {{}}\n{}", "//\n".repeat(39)));
    assert!(said.contains("crates/sample/src/main.rs: has 41 lines, 40 at most"), "{said}");
}

#[test]
fn a_crate_without_purpose_lints_or_license_is_found() {
    let said = complaint("crates/sample/src/lib.rs", "// A sample.\n");
    assert!(said.contains("crates/sample/src/lib.rs: does not state its purpose"), "{said}");
    let said = complaint("crates/sample/src/bin/tool.rs", "fn main() {}\n");
    assert!(said.contains("tool.rs: does not state its purpose"), "{said}");

    let package = "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    let said = complaint("crates/sample/Cargo.toml", &format!("{package}license.workspace = true\n"));
    assert!(said.contains("sample: does not use the workspace's lints"), "{said}");
    let said = complaint("crates/sample/Cargo.toml", &format!("{package}[lints]\nworkspace = true\n"));
    assert!(said.contains("sample: does not use the workspace's license"), "{said}");
}

#[test]
fn a_crate_missing_from_the_architecture_page_is_found() {
    let said = complaint("docs/architecture.md", "# The house\n\nRoomy.\n");
    assert!(said.contains("docs/architecture.md: does not mention the crate sample"), "{said}");
}

#[test]
fn a_test_program_that_the_makefile_does_not_list_is_found() {
    let sandbox = valid();
    sandbox.write("crates/sample/tests/fast.rs", "");
    sandbox.write("Makefile", "UNIT_TESTS := fast\n");
    let (ok, said) = sandbox.house(&["layout"]);
    assert!(ok, "{said}");
    sandbox.write("crates/sample/tests/slow/main.rs", "");
    let (ok, said) = sandbox.house(&["layout"]);
    assert!(!ok && said.contains("Makefile: the test program slow is in no list"), "{said}");
}

#[test]
fn files_that_git_ignores_are_not_checked() {
    let sandbox = valid();
    let git = std::process::Command::new("git").args(["init", "--quiet"]).current_dir(&sandbox.root).status();
    assert!(git.expect("git runs").success());
    sandbox.write(".gitignore", "/scratch\n");
    sandbox.write("scratch/long.rs", &"//\n".repeat(501));
    let (ok, said) = sandbox.house(&["layout"]);
    assert!(ok, "an ignored file is not checked: {said}");

    sandbox.write("new/long.rs", &"//\n".repeat(501));
    let (ok, said) = sandbox.house(&["layout", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert!(!ok, "an untracked file is checked: {said}");
    assert_eq!(report["ok"], false);
    assert_eq!(report["findings"][0]["place"], "new/long.rs");
}
