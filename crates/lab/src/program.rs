//! Programs of ours on a machine of the lab: a controller under test, started as a component like all others.
//!
//! It finds the lab by its environment as `lab exec` does (`OVN_NB_DB`, `OVN_SB_DB`, `KUBECONFIG`), ends with the lab
//! at the latest, and its log is among those that are shown when a test fails.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, make_dir};
use crate::ready::Ready;
use crate::site::Component;
use crate::underlay::CONTROL;

/// A program to run; see [`crate::Lab::run`].
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
    /// A binary of the host by path, or one of the node image by its bare name (`ovn-northd`), to run on the control
    /// machine under a name that faults and logs know it by.
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

    /// On another machine.
    #[must_use]
    pub fn on(mut self, machine: &str) -> Self {
        self.machine = machine.into();
        self
    }

    /// With these arguments as well.
    #[must_use]
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// With this variable as well.
    #[must_use]
    pub fn environment(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// It is ready when a line of its log contains this. If nothing is said, it is ready as soon as it runs.
    #[must_use]
    pub fn ready_when_logged(mut self, text: impl Into<String>) -> Self {
        self.ready = Ready::Log(text.into().into());
        self
    }

    /// It is ready when it says so by systemd's protocol.
    #[must_use]
    pub fn ready_when_notified(mut self) -> Self {
        self.ready = Ready::Notify;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The component, with the binary where machines see it: below the lab's folder.
    pub(crate) fn component(&self, lab: &Path) -> Result<Component> {
        crate::spec::check_name(&self.name).map_err(|_| {
            Error::Invalid(format!("{:?} is no name for a program; use one such as a lab has", self.name))
        })?;
        let of_the_image = self.path.components().count() == 1 && self.path.is_relative();
        let binary = if of_the_image { self.path.clone() } else { bring(&self.path, &lab.join("programs"))? };
        let binary = binary.display().to_string();
        let words: Vec<&str> =
            std::iter::once(binary.as_str()).chain(self.arguments.iter().map(String::as_str)).collect();
        let mut component = Component::new(&self.name, &self.machine, self.ready.clone(), &words);
        component.environment = self.environment.clone();
        Ok(component)
    }
}

/// Copies a binary once for each build of it: one that was built anew is another file, and one that runs stays as it is.
pub(crate) fn bring(binary: &Path, folder: &Path) -> Result<PathBuf> {
    let cannot = |what: &str| Error::io(format!("cannot {what} {}", binary.display()));
    let meta = std::fs::metadata(binary).map_err(cannot("find the program"))?;
    let name = binary.file_name().filter(|_| meta.is_file());
    let name = name.ok_or_else(|| Error::Invalid(format!("{} is no program", binary.display())))?;
    let folder = folder.join(format!("{}-{}-{}", meta.ino(), meta.mtime(), meta.mtime_nsec()));
    let copy = folder.join(name);
    if !copy.exists() {
        make_dir(&folder)?;
        // Not seen under its name before it is whole; two who copy at once do not meet.
        let part = folder.join(format!("part-{:?}", std::thread::current().id()));
        // By a process of its own: a file that this one has open for writing could be inherited by whatever another
        // thread starts at that moment, and then "Text file busy" is all that comes of it.
        let copied = std::process::Command::new("cp").args(["--reflink=auto", "--"]).arg(binary).arg(&part).status();
        if !copied.map_err(cannot("copy"))?.success() {
            return Err(Error::Invalid(format!("cannot copy {} to {}", binary.display(), part.display())));
        }
        std::fs::rename(&part, &copy).map_err(cannot("copy"))?;
    }
    Ok(copy)
}
