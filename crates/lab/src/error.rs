//! What can go wrong in a lab, said in one line with the remedy.

use std::path::{Path, PathBuf};

/// The result of everything that the lab does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the lab. Each message is one line that names the thing and says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab makes namespaces, mounts and cgroups, which only root may.
    #[error("the lab needs root to make namespaces and mounts; run it as root (sudo {command})")]
    NotRoot {
        /// The command that was typed.
        command: String,
    },
    /// Ctrl-C or SIGTERM, after which the command cleaned up.
    #[error("interrupted; nothing was measured to its end")]
    Interrupted,
    /// A program that the lab needs on the machine itself is not there.
    #[error("{program} is missing ({purpose}); remedy: {remedy}")]
    MissingTool {
        /// The program.
        program: String,
        /// What it is needed for.
        purpose: String,
        /// How to get it.
        remedy: String,
    },
    /// Packages or modules could not be fetched.
    #[error("cannot fetch {what}: {cause}; remedy: {remedy}")]
    Unreachable {
        /// What was being fetched.
        what: String,
        /// The decisive line of the failed program.
        cause: String,
        /// What to do about it.
        remedy: String,
    },
    /// An address that the lab was asked to listen on is taken.
    #[error("{address} is in use by another program; choose another with {option}, or leave it out to get a free one")]
    PortInUse {
        /// The address.
        address: String,
        /// The option that changes it.
        option: &'static str,
    },
    /// A file system has no room for what the lab keeps.
    #[error(
        "no space left on {path} for {what} ({needed_mib} MiB needed, {free_mib} MiB free); free some, or move it with {variable}"
    )]
    DiskFull {
        /// The folder.
        path: PathBuf,
        /// What was to be written.
        what: String,
        /// How much it takes.
        needed_mib: u64,
        /// How much there is.
        free_mib: u64,
        /// The environment variable that moves the folder.
        variable: &'static str,
    },
    /// A component ended before it was ready.
    #[error("{component} ended ({status}) before it was ready; last lines of {}: {tail}", log.display())]
    Ended {
        /// The component's name.
        component: String,
        /// Its exit status.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The end of its log.
        tail: String,
    },
    /// A component did not become ready in time.
    #[error("{component} was not ready after {seconds} s ({awaited}); look at {}", log.display())]
    NotReady {
        /// The component's name.
        component: String,
        /// How long was waited.
        seconds: u64,
        /// The event that did not come.
        awaited: String,
        /// Its log file.
        log: PathBuf,
    },
    /// A command of a one-off kind failed.
    #[error("`{command}` failed on {place} ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// The machine it ran on.
        place: String,
        /// Its exit status.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// A name that the lab does not know.
    #[error("no {kind} named {name:?} in lab {lab:?}; there are: {known}")]
    Unknown {
        /// What kind of thing was looked for.
        kind: &'static str,
        /// The name.
        name: String,
        /// The lab.
        lab: String,
        /// The names there are.
        known: String,
    },
    /// A lab of that name runs already.
    #[error(
        "lab {name:?} is running already; `lab status --name {name}` shows it, `lab down --name {name}` removes it"
    )]
    Running {
        /// The lab's name.
        name: String,
    },
    /// No lab of that name runs.
    #[error("no lab named {name:?} is running; `lab up --name {name}` starts one, `lab list` shows those there are")]
    NotRunning {
        /// The lab's name.
        name: String,
    },
    /// An input that makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A system call or file operation failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps a system error with what was being done.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// Wraps an error number with what was being done.
    pub fn errno(doing: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Self {
        let doing = doing.into();
        move |errno| Self::Io { doing, source: errno.into() }
    }
}

/// Writes a file and its parent folders; an error names the path.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    std::fs::write(path, content).map_err(Error::io(format!("cannot write {}", path.display())))
}

/// Makes a folder and its parents; an error names the path.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(Error::io(format!("cannot make the folder {}", path.display())))
}

/// Reads a text file; an error names the path.
pub(crate) fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(Error::io(format!("cannot read {}", path.display())))
}

/// Removes a folder and all below it, but never what is mounted there: that belongs to somebody else.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below =
        mounts.lines().filter_map(|line| line.split(' ').nth(4)).find(|point| Path::new(point).starts_with(path));
    if let Some(point) = below {
        return Err(Error::Invalid(format!(
            "{} is not removed: something is mounted at {point}; unmount it first",
            path.display()
        )));
    }
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Io { doing: format!("cannot remove {}", path.display()), source: error })
        }
        _ => Ok(()),
    }
}
