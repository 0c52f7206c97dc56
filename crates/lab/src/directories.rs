//! The lab's cache and state directories, and the environment variables that set them.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Sets the cache directory: node images, Kubernetes binaries, container images.
pub(crate) const CACHE_VARIABLE: &str = "OVNKUBE_LAB_CACHE";
/// Sets the state directory: databases, sockets and logs of running labs.
pub(crate) const STATE_VARIABLE: &str = "OVNKUBE_LAB_STATE";
/// Sets the Debian suite of the node image (`trixie`, `sid`, `bookworm`).
pub const SUITE_VARIABLE: &str = "OVNKUBE_LAB_SUITE";
/// Names a directory with Kubernetes binaries, to use instead of building them.
pub(crate) const KUBERNETES_VARIABLE: &str = "OVNKUBE_LAB_KUBERNETES";

/// The cache and the state directory.
#[derive(Debug, Clone)]
pub struct Directories {
    cache: PathBuf,
    state: PathBuf,
}

impl Directories {
    /// The directories that the environment names, or the defaults.
    pub fn from_environment() -> Result<Self> {
        Self::new(
            dir_from_env(CACHE_VARIABLE, "/var/cache/ovnkube-lab")?,
            dir_from_env(STATE_VARIABLE, "/var/lib/ovnkube-lab")?,
        )
    }

    /// Both must be absolute.
    pub fn new(cache: PathBuf, state: PathBuf) -> Result<Self> {
        for path in [&cache, &state] {
            // The paths become part of mount options, where these characters are separators.
            if !path.is_absolute() || path.to_string_lossy().contains([':', ',', ' ']) {
                return Err(Error::Invalid(format!(
                    "invalid lab directory {}: it must be absolute and must not contain ':', ',' or spaces; change {CACHE_VARIABLE} or {STATE_VARIABLE}",
                    path.display()
                )));
            }
        }
        Ok(Self { cache, state })
    }

    /// Images and programs that all labs share.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// All labs of this host, one directory each.
    pub fn labs(&self) -> PathBuf {
        self.state.join("labs")
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.state.join("locks")
    }

    /// Everything of one lab: record, logs, sockets, disks.
    pub fn lab(&self, name: &str) -> PathBuf {
        self.labs().join(name)
    }

    /// Where the logs of a failed lab are kept.
    pub fn failed(&self, name: &str) -> PathBuf {
        self.state.join("failed").join(name)
    }
}

fn dir_from_env(variable: &str, usual: &str) -> Result<PathBuf> {
    match std::env::var_os(variable) {
        None => Ok(PathBuf::from(usual)),
        Some(value) if value.is_empty() => {
            Err(Error::Invalid(format!("{variable} is set but empty; unset it to use {usual}")))
        }
        Some(value) => Ok(PathBuf::from(value)),
    }
}

/// Fails early if the file system has too little space for a long write.
pub(crate) fn require_space(path: &Path, what: &str, needed_mib: u64, variable: &'static str) -> Result<()> {
    crate::error::create_dir(path)?;
    let free_mib = free_mib(path)?;
    if free_mib < needed_mib {
        return Err(Error::DiskFull { path: path.to_owned(), what: what.to_owned(), needed_mib, free_mib, variable });
    }
    Ok(())
}

/// Free space of the file system of `path`.
pub(crate) fn free_mib(path: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path)
        .map_err(Error::errno(format!("cannot read the free space of {}", path.display())))?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()) >> 20)
}

/// Fails early if this process is not root.
pub(crate) fn require_root(command: &str) -> Result<()> {
    if nix::unistd::Uid::effective().is_root() { Ok(()) } else { Err(Error::NotRoot { command: command.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_directory_is_rejected_with_the_variable_that_sets_it() {
        for odd in ["cache", "/a:b", "/a,b", "/a b"] {
            let message = Directories::new(odd.into(), "/state".into()).unwrap_err().to_string();
            assert!(message.contains(odd) && message.contains(CACHE_VARIABLE), "{message}");
        }
    }

    #[test]
    fn a_full_disk_is_reported_before_the_work_starts() {
        let message =
            require_space(&std::env::temp_dir(), "the node image", u64::MAX, CACHE_VARIABLE).unwrap_err().to_string();
        assert!(message.contains("no space left") && message.contains(CACHE_VARIABLE), "{message}");
    }
}
