//! The lab's error type. Each message is one line: what failed, which object, why, and the remedy.

use std::path::{Path, PathBuf};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the lab needs root to create namespaces and mounts; run it as root (sudo {command})")]
    NotRoot {
        /// As typed, for the `sudo` line.
        command: String,
    },
    /// Ctrl-C or SIGTERM; the command has cleaned up.
    #[error("interrupted; the measurement is not complete")]
    Interrupted,
    /// A program that is missing on the host.
    #[error("{program} is missing ({purpose}); remedy: {remedy}")]
    MissingTool { program: String, purpose: String, remedy: String },
    #[error("cannot fetch {what}: {cause}; remedy: {remedy}")]
    Unreachable {
        what: String,
        /// The first relevant line of the failed program's output.
        cause: String,
        remedy: String,
    },
    #[error("{address} is in use by another program; choose another with {option}, or omit it to get a free one")]
    PortInUse {
        address: String,
        /// The command-line option that changes the address.
        option: &'static str,
    },
    #[error(
        "no space left on {path} for {what} ({needed_mib} MiB needed, {free_mib} MiB free); free some, or move it with {variable}"
    )]
    DiskFull {
        path: PathBuf,
        what: String,
        needed_mib: u64,
        free_mib: u64,
        /// The environment variable that moves the directory.
        variable: &'static str,
    },
    /// A component exited before it was ready.
    #[error("{component} exited ({status}) before it was ready; last lines of {}: {tail}", log.display())]
    Ended {
        component: String,
        status: String,
        log: PathBuf,
        /// The last lines of the log, on one line.
        tail: String,
    },
    #[error("{component} was not ready after {seconds} s ({awaited}); see {}", log.display())]
    NotReady {
        component: String,
        seconds: u64,
        /// Which ready signal was expected.
        awaited: String,
        log: PathBuf,
    },
    /// A command on a machine failed.
    #[error("`{command}` failed on {machine} ({status}): {stderr}")]
    Command { command: String, machine: String, status: String, stderr: String },
    #[error("no {kind} named {name:?} in lab {lab:?}; there are: {known}")]
    Unknown {
        /// `machine` or `component`.
        kind: &'static str,
        name: String,
        lab: String,
        /// The existing names.
        known: String,
    },
    #[error(
        "lab {name:?} is already running; `lab status --name {name}` shows it, `lab down --name {name}` removes it"
    )]
    Running { name: String },
    #[error("no lab named {name:?} is running; `lab up --name {name}` starts one, `lab list` shows the running ones")]
    NotRunning { name: String },
    /// Input that cannot be used, and failures whose message needs no fields.
    #[error("{0}")]
    Invalid(String),
    /// A system call or file operation failed.
    #[error("{context}: {source}")]
    Io {
        /// What failed, with the path: `cannot write /x`.
        context: String,
        source: std::io::Error,
    },
}

impl Error {
    /// Adds context to a system error.
    pub fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }

    /// Adds context to an error number.
    pub(crate) fn errno(context: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Self {
        let context = context.into();
        move |errno| Self::Io { context, source: errno.into() }
    }
}

/// Writes a file and its parent directories; an error names the path.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    if let Some(parent) = path.parent() {
        create_dir(parent)?;
    }
    std::fs::write(path, content).map_err(Error::io(format!("cannot write {}", path.display())))
}

/// Creates a directory and its parents; an error names the path.
pub(crate) fn create_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(Error::io(format!("cannot create the directory {}", path.display())))
}

/// Reads a text file; an error names the path.
pub(crate) fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(Error::io(format!("cannot read {}", path.display())))
}

/// Removes a directory and everything below it, but refuses if something is mounted there: that belongs to another
/// program.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below =
        mounts.lines().filter_map(|line| line.split(' ').nth(4)).find(|point| Path::new(point).starts_with(path));
    if let Some(point) = below {
        return Err(Error::Invalid(format!(
            "cannot remove {}: a file system is mounted at {point}; unmount it first",
            path.display()
        )));
    }
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Io { context: format!("cannot remove {}", path.display()), source: error })
        }
        _ => Ok(()),
    }
}
