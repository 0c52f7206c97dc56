//! Programs under test, such as a controller, started as components.
//!
//! A program finds the lab's servers by its environment, as with `lab exec` (`OVN_NB_DB`, `OVN_SB_DB`, `KUBECONFIG`),
//! exits with the lab at the latest, and its log is printed when a test fails.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, create_dir};
use crate::ready::Ready;
use crate::supervisor::Component;
use crate::underlay::CONTROL;

/// A program to run with [`crate::Lab::run`].
#[derive(Debug, Clone)]
pub struct Program {
    name: String,
    path: PathBuf,
    machine: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    ready: Ready,
}

impl Program {
    /// A binary of the host by path, or one of the node image by its bare name (`ovn-northd`). Runs on the control
    /// machine; `name` becomes the component's name.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            machine: CONTROL.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            ready: Ready::Running,
        }
    }

    /// Runs it on another machine.
    #[must_use]
    pub fn on(mut self, machine: &str) -> Self {
        self.machine = machine.into();
        self
    }

    /// Appends; the program's name is not among them.
    #[must_use]
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn environment(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// Ready when a log line contains this text. Without a ready signal it is ready as soon as it runs.
    #[must_use]
    pub fn ready_when_logged(mut self, text: impl Into<String>) -> Self {
        self.ready = Ready::Log(text.into().into());
        self
    }

    /// The component's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The binary, as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The component, with the binary copied below the lab's directory, which machines see.
    pub(crate) fn component(&self, lab: &Path) -> Result<Component> {
        crate::spec::check_name(&self.name).map_err(|_| {
            Error::Invalid(format!(
                "invalid program name {:?}: use at most 40 lower-case letters, digits and '-'",
                self.name
            ))
        })?;
        let of_the_image = self.path.components().count() == 1 && self.path.is_relative();
        let binary = if of_the_image { self.path.clone() } else { copy_program(&self.path, &lab.join("programs"))? };
        let binary = binary.display().to_string();
        let args: Vec<&str> =
            std::iter::once(binary.as_str()).chain(self.arguments.iter().map(String::as_str)).collect();
        let mut component = Component::new(&self.name, &self.machine, self.ready.clone(), &args);
        component.environment = self.environment.clone();
        Ok(component)
    }
}

/// Copies a binary, once for each build of it: a running one is never overwritten.
pub(crate) fn copy_program(binary: &Path, dir: &Path) -> Result<PathBuf> {
    let cannot = |what: &str| Error::io(format!("cannot {what} {}", binary.display()));
    let meta = std::fs::metadata(binary).map_err(cannot("find the program"))?;
    let name = binary.file_name().filter(|_| meta.is_file());
    let name = name.ok_or_else(|| Error::Invalid(format!("{} is not a file", binary.display())))?;
    let dir = dir.join(format!("{}-{}-{}", meta.ino(), meta.mtime(), meta.mtime_nsec()));
    let copy = dir.join(name);
    if !copy.exists() {
        create_dir(&dir)?;
        // Renamed when complete; parallel copies use different temporary names.
        let part = dir.join(format!("part-{:?}", std::thread::current().id()));
        // By another process: a file that this process has open for writing could be inherited by a program that
        // another thread spawns at that moment, and then exec fails with "Text file busy".
        let copied = std::process::Command::new("cp").args(["--reflink=auto", "--"]).arg(binary).arg(&part).status();
        if !copied.map_err(cannot("copy"))?.success() {
            return Err(Error::Invalid(format!("cannot copy {} to {}", binary.display(), part.display())));
        }
        std::fs::rename(&part, &copy).map_err(cannot("copy"))?;
    }
    Ok(copy)
}
