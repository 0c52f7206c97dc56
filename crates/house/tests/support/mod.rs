//! A temporary workspace with empty sources, removed at the end.

#![allow(dead_code, reason = "each test file compiles its own copy of this module and uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A workspace in a temporary directory.
pub(crate) struct Sandbox {
    pub(crate) root: PathBuf,
}

impl Sandbox {
    pub(crate) fn empty() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("house-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).expect("a temporary directory");
        // Cargo prints resolved paths, and the temporary directory may be a symbolic link.
        Self { root: root.canonicalize().expect("the directory exists") }
    }

    /// Manifests, lock file and policy of the real workspace, with an empty source file for each target.
    pub(crate) fn of_the_workspace() -> Self {
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace");
        let sandbox = Self::empty();
        for file in ["Cargo.toml", "Cargo.lock", "house.toml"] {
            sandbox.write(file, &fs::read_to_string(real.join(file)).expect(file));
        }
        let metadata = cargo(&real, &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
        let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("metadata");
        for package in metadata["packages"].as_array().expect("packages") {
            let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
            let inside = |path: &Path| path.strip_prefix(&real).expect("in the workspace").display().to_string();
            sandbox.write(&inside(manifest), &fs::read_to_string(manifest).expect("a manifest"));
            for target in package["targets"].as_array().expect("targets") {
                let source = Path::new(target["src_path"].as_str().expect("a path"));
                sandbox.write(&inside(source), "//! Nothing.\n");
            }
        }
        sandbox.refresh_lock_file();
        sandbox
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.root.join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root.join(file)).expect(file)
    }

    /// Puts `line` right below the table's heading.
    pub(crate) fn add_below(&self, file: &str, heading: &str, line: &str) {
        let text = self.read(file);
        assert!(text.contains(heading), "{file} has no {heading}");
        self.write(file, &text.replacen(heading, &format!("{heading}\n{line}"), 1));
    }

    /// `house` requires a current lock file.
    pub(crate) fn refresh_lock_file(&self) {
        // `cargo update --workspace` changes no versions and downloads nothing.
        let done = cargo(&self.root, &["update", "--workspace", "--offline"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Runs `house`; returns whether it succeeds, and its output.
    pub(crate) fn house(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_house"));
        let done = command.args(arguments).current_dir(&self.root).output().expect("house runs");
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(said).expect("text"))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Command::new(program).args(arguments).current_dir(folder).output().expect("cargo runs")
}
