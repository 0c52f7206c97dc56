//! Which process owns a lab: the one that holds the lock of its name. The kernel releases the lock when the holder
//! dies, for any reason, so a crashed lab is recognized without searching for processes.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::directories::Directories;
use crate::error::{Error, Result, create_dir};
use crate::process::ProcessId;

/// How long another process may take to remove a crashed lab.
const REMOVAL_LIMIT: Duration = Duration::from_secs(120);

fn lock_path(directories: &Directories, name: &str) -> PathBuf {
    directories.locks().join(format!("{name}.lock"))
}

/// Why a process holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Own,
    /// It removes a crashed lab, which is quick.
    Remove,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Remove => "remove",
        }
    }
}

/// Holds the lock of a lab's name.
#[derive(Debug)]
pub(crate) struct Ownership {
    path: PathBuf,
    _file: File,
}

impl Ownership {
    /// Takes the lock, waiting for a removal that is in progress; `None` if a living process owns the lab.
    pub(crate) fn take(directories: &Directories, name: &str, purpose: Purpose) -> Result<Option<Self>> {
        crate::spec::check_name(name)?;
        let path = lock_path(directories, name);
        create_dir(&directories.locks())?;
        let context = format!("cannot lock {}", path.display());
        let me = ProcessId::of(std::process::id())
            .ok_or_else(|| Error::Invalid("/proc is not mounted; the lab needs it".into()))?;
        let deadline = Instant::now() + REMOVAL_LIMIT;
        loop {
            let mut file = File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(&path)
                .map_err(Error::io(context.clone()))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    if owner(directories, name).is_some() {
                        return Ok(None);
                    }
                    if Instant::now() > deadline {
                        return Err(Error::Invalid(format!(
                            "{context}: the removal of lab {name:?} by another process does not finish; `fuser -v {}` shows the process",
                            path.display()
                        )));
                    }
                    // The owner is about to write its pid, or a removal is in progress: both are quick.
                    crate::process::wait_readable(&[], Instant::now() + Duration::from_millis(5));
                    continue;
                }
                Err(TryLockError::Error(error)) => return Err(Error::Io { context, source: error }),
            }
            // The previous holder may have deleted the file: then this lock protects nothing.
            let same = |other: std::fs::Metadata| file.metadata().is_ok_and(|own| own.ino() == other.ino());
            if !std::fs::metadata(&path).is_ok_and(same) {
                continue;
            }
            let signature = format!("{} {} {}\n", purpose.word(), me.pid, me.started);
            file.set_len(0)
                .and_then(|()| file.seek(SeekFrom::Start(0)))
                .and_then(|_| file.write_all(signature.as_bytes()))
                .map_err(Error::io(context))?;
            return Ok(Some(Self { path, _file: file }));
        }
    }

    /// Call it only after the lab was removed: the lock file proves ownership until then.
    pub(crate) fn delete_lock_file(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The living process that runs the lab.
pub(crate) fn owner(directories: &Directories, name: &str) -> Option<ProcessId> {
    let mut text = String::new();
    File::open(lock_path(directories, name)).ok()?.read_to_string(&mut text).ok()?;
    let mut words = text.split_whitespace();
    if words.next() != Some(Purpose::Own.word()) {
        return None;
    }
    let owner = ProcessId { pid: words.next()?.parse().ok()?, started: words.next()?.parse().ok()? };
    owner.is_alive().then_some(owner)
}

/// Whether a living process owns the lab.
pub(crate) fn has_owner(directories: &Directories, name: &str) -> bool {
    owner(directories, name).is_some()
}
