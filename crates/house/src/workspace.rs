//! The workspace's crates as cargo lists them, and its files as git lists them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::HouseError;

/// The workspace that is checked.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Absolute path of its root directory.
    pub(crate) root: PathBuf,
    /// In cargo's order.
    pub(crate) members: Vec<Member>,
}

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    /// The package's name.
    pub(crate) name: String,
    /// Its Cargo.toml.
    pub(crate) manifest: PathBuf,
    /// The first source file of its library and of each of its binaries.
    pub(crate) openings: Vec<PathBuf>,
    /// The names of its test programs.
    pub(crate) tests: Vec<String>,
}

/// The part of `cargo metadata` that is read.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Workspace {
    pub(crate) fn load(manifest_path: Option<&Path>) -> Result<Self, HouseError> {
        let mut command = cargo();
        command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
        if let Some(path) = manifest_path {
            command.arg("--manifest-path").arg(path);
        }
        let metadata: Metadata = serde_json::from_str(&output(&mut command)?)
            .map_err(|error| HouseError::UnexpectedOutput { command: display(&command), problem: error.to_string() })?;
        let members = metadata.packages.into_iter().map(Member::from).collect();
        Ok(Self { root: metadata.workspace_root, members })
    }

    /// The crate of this name.
    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Every file that is or would be committed, relative to the root, sorted. A new file counts before it is added,
    /// so that a check says the same before and after `git add`.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, HouseError> {
        let mut files = if self.root.join(".git").exists() {
            let mut command = Command::new("git");
            command.arg("-C").arg(&self.root);
            command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
            let listed = output(&mut command)?;
            let names = listed.split('\0').filter(|name| !name.is_empty());
            // A file that was deleted but not yet committed is still listed.
            names.map(PathBuf::from).filter(|file| self.root.join(file).is_file()).collect()
        } else {
            let mut found = Vec::new();
            self.walk(&self.root, &mut found)?;
            found
        };
        files.sort();
        Ok(files)
    }

    /// The path relative to the root.
    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// Replaces git in an unpacked source archive: all files outside hidden and build directories.
    fn walk(&self, directory: &Path, found: &mut Vec<PathBuf>) -> Result<(), HouseError> {
        let unreadable = |source| HouseError::Read { path: directory.to_owned(), source };
        for entry in fs::read_dir(directory).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !path.is_symlink() {
                if !name.starts_with('.') && name != "target" {
                    self.walk(&path, found)?;
                }
            } else if path.is_file() {
                found.push(path.strip_prefix(&self.root).unwrap_or(&path).to_owned());
            }
        }
        Ok(())
    }
}

impl From<Package> for Member {
    fn from(package: Package) -> Self {
        let is_a = |target: &Target, kinds: &[&str]| target.kind.iter().any(|kind| kinds.contains(&kind.as_str()));
        let (mut openings, mut tests) = (Vec::new(), Vec::new());
        for target in package.targets {
            if is_a(&target, &["lib", "bin", "proc-macro"]) {
                openings.push(target.src_path);
            } else if is_a(&target, &["test"]) {
                tests.push(target.name);
            }
        }
        Self { name: package.name, manifest: package.manifest_path, openings, tests }
    }
}

/// The cargo that started us, else the one on PATH.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs the command and returns its standard output; its failure as one line.
pub(crate) fn output(command: &mut Command) -> Result<String, HouseError> {
    let result = command.output().map_err(|source| HouseError::Start {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    if result.status.success() {
        return Ok(String::from_utf8_lossy(&result.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&result.stderr);
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(HouseError::Failed { command: display(command), problem: lines.join("; ") })
}

/// The command line, for messages.
pub(crate) fn display(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
