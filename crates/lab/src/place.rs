//! Where the lab keeps things, and the environment variables that move them.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Moves the cache: node images, Kubernetes binaries, container images.
pub const CACHE_VARIABLE: &str = "OVNKUBE_LAB_CACHE";
/// Moves the state of labs that run: databases, sockets, logs.
pub const STATE_VARIABLE: &str = "OVNKUBE_LAB_STATE";
/// Chooses the Debian suite of the node image (`trixie`, `sid`, `bookworm`).
pub const SUITE_VARIABLE: &str = "OVNKUBE_LAB_SUITE";
/// Names a folder that holds Kubernetes binaries already.
pub const KUBERNETES_VARIABLE: &str = "OVNKUBE_LAB_KUBERNETES";

/// The folders of the lab.
#[derive(Debug, Clone)]
pub struct Place {
    cache: PathBuf,
    state: PathBuf,
}

impl Place {
    /// The folders that the environment names, or the usual ones.
    pub fn from_environment() -> Result<Self> {
        Self::new(folder(CACHE_VARIABLE, "/var/cache/ovnkube-lab")?, folder(STATE_VARIABLE, "/var/lib/ovnkube-lab")?)
    }

    /// Folders of one's own choice; both must be absolute.
    pub fn new(cache: PathBuf, state: PathBuf) -> Result<Self> {
        for path in [&cache, &state] {
            // The paths go into mount options, which split at these.
            if !path.is_absolute() || path.to_string_lossy().contains([':', ',', ' ']) {
                return Err(Error::Invalid(format!(
                    "{} cannot be used as a folder of the lab: it must be absolute and without ':', ',' or spaces; change {CACHE_VARIABLE} or {STATE_VARIABLE}",
                    path.display()
                )));
            }
        }
        Ok(Self { cache, state })
    }

    /// What is kept between labs.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The folder of all running labs.
    pub fn labs(&self) -> PathBuf {
        self.state.join("labs")
    }

    /// The folder of the locks of their names.
    pub(crate) fn locks(&self) -> PathBuf {
        self.state.join("locks")
    }

    /// The folder of one lab.
    pub fn lab(&self, name: &str) -> PathBuf {
        self.labs().join(name)
    }

    /// Where the logs of a failed lab are kept.
    pub fn failed(&self, name: &str) -> PathBuf {
        self.state.join("failed").join(name)
    }
}

fn folder(variable: &str, usual: &str) -> Result<PathBuf> {
    match std::env::var_os(variable) {
        None => Ok(PathBuf::from(usual)),
        Some(value) if value.is_empty() => {
            Err(Error::Invalid(format!("{variable} is set but empty; unset it to use {usual}")))
        }
        Some(value) => Ok(PathBuf::from(value)),
    }
}

/// Refuses to start a long write on a file system that has no room for it.
pub(crate) fn require_space(path: &Path, what: &str, needed_mib: u64, variable: &'static str) -> Result<()> {
    crate::error::make_dir(path)?;
    let free_mib = free_mib(path)?;
    if free_mib < needed_mib {
        return Err(Error::DiskFull { path: path.to_owned(), what: what.to_owned(), needed_mib, free_mib, variable });
    }
    Ok(())
}

/// Free space of the file system that holds `path`.
pub(crate) fn free_mib(path: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path)
        .map_err(Error::errno(format!("cannot ask for the free space of {}", path.display())))?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()) >> 20)
}

/// Refuses early, in one line, when this is not root.
pub fn require_root(command: &str) -> Result<()> {
    if nix::unistd::Uid::effective().is_root() { Ok(()) } else { Err(Error::NotRoot { command: command.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_or_odd_folder_is_refused_with_the_variable_that_changes_it() {
        for odd in ["cache", "/a:b", "/a,b", "/a b"] {
            let message = Place::new(odd.into(), "/state".into()).unwrap_err().to_string();
            assert!(message.contains(odd) && message.contains(CACHE_VARIABLE), "{message}");
        }
    }

    #[test]
    fn a_full_disk_is_said_before_the_work_starts() {
        let message =
            require_space(&std::env::temp_dir(), "the node image", u64::MAX, CACHE_VARIABLE).unwrap_err().to_string();
        assert!(message.contains("no space left") && message.contains(CACHE_VARIABLE), "{message}");
    }
}
