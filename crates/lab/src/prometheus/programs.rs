//! Debian's prometheus and promtool, extracted beside the node image: few labs need them, so they are not in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian_package;
use crate::directories::Directories;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::spec::Suite;

const SPACE_MIB: u64 = 400;

/// The extracted package.
#[derive(Debug, Clone)]
pub struct Programs {
    root: PathBuf,
}

impl Programs {
    /// Finds the programs in the cache of the environment, or fetches them (as root).
    pub fn from_environment() -> Result<Self> {
        Self::ensure(&Directories::from_environment()?, Suite::from_environment()?, &Progress::silent())
    }

    /// Finds the programs in the cache or fetches them.
    pub(crate) fn ensure(directories: &Directories, suite: Suite, progress: &Progress) -> Result<Self> {
        debian_package::ensure(directories, suite, "prometheus", SPACE_MIB, progress).map(|root| Self { root })
    }

    /// The root of the package's files.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// For machines of the same suite.
    pub(crate) fn prometheus(&self) -> PathBuf {
        self.root.join("usr/bin/prometheus")
    }

    /// Runs `promtool` on the host and returns its output; an error contains it.
    pub fn promtool(&self, directory: &Path, args: &[&str]) -> Result<String> {
        // With its own libraries: the host may be of another suite.
        let (loader, libraries) = self.libraries()?;
        let mut command = Command::new(loader);
        command.args(["--inhibit-cache", "--library-path"]).arg(libraries).arg(self.root.join("usr/bin/promtool"));
        let output = command.args(args).current_dir(directory).output().map_err(Error::io("cannot run promtool"))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(Error::Invalid(format!("promtool {} failed ({}):\n{text}", args.join(" "), output.status)))
    }

    /// The dynamic loader and the directory of libc.
    fn libraries(&self) -> Result<(PathBuf, PathBuf)> {
        let find = |directory: &Path, wanted: &dyn Fn(&Path) -> bool| -> Option<PathBuf> {
            let entries = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
            entries.into_iter().find(|path| wanted(path))
        };
        let of = |parent: &str| find(&self.root.join(parent), &|path| path.join("libc.so.6").exists());
        // Debian 12 has it in the second one.
        let libraries = of("usr/lib").or_else(|| of("lib"));
        let is_loader =
            |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"));
        let loader = libraries.as_deref().and_then(|libraries| find(libraries, &is_loader));
        loader.zip(libraries).ok_or_else(|| {
            let remedy = "remove this directory, and it is fetched again";
            Error::Invalid(format!("no C library in {}; {remedy}", self.root.display()))
        })
    }
}
