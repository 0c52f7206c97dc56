//! Who owns a lab: whoever holds the lock of its name. The kernel lets go of it when the holder dies, in whatever way,
//! so a crash is told from a running lab without looking at a process list.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, make_dir};
use crate::place::Place;
use crate::process::ProcessId;

/// How long somebody may take to remove what a crash left.
const REMOVAL_LIMIT: Duration = Duration::from_secs(120);

fn lock_path(place: &Place, name: &str) -> PathBuf {
    place.locks().join(format!("{name}.lock"))
}

/// What the holder of a name does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It runs the lab.
    Own,
    /// It removes what a crash left, which does not take long.
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

/// The lock of a lab's name, held.
#[derive(Debug)]
pub(crate) struct Ownership {
    path: PathBuf,
    _file: File,
}

impl Ownership {
    /// Takes the name, after anybody who is just removing what a crash left; `None` if a living process owns the lab.
    pub(crate) fn take(place: &Place, name: &str, purpose: Purpose) -> Result<Option<Self>> {
        crate::spec::check_name(name)?;
        let path = lock_path(place, name);
        make_dir(&place.locks())?;
        let doing = format!("cannot lock {}", path.display());
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
                .map_err(Error::io(doing.clone()))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    if owner(place, name).is_some() {
                        return Ok(None);
                    }
                    if Instant::now() > deadline {
                        return Err(Error::Invalid(format!(
                            "{doing}: who removes lab {name:?} does not come to an end; `fuser -v {}` tells who that is",
                            path.display()
                        )));
                    }
                    // It is being signed, or its lab is being removed: a matter of moments.
                    crate::process::wait_readable(&[], Instant::now() + Duration::from_millis(5));
                    continue;
                }
                Err(TryLockError::Error(error)) => return Err(Error::Io { doing, source: error }),
            }
            // The holder before may have removed the file: then this is the lock of nothing.
            let same = |other: std::fs::Metadata| file.metadata().is_ok_and(|own| own.ino() == other.ino());
            if !std::fs::metadata(&path).is_ok_and(same) {
                continue;
            }
            let signature = format!("{} {} {}\n", purpose.word(), me.pid, me.started);
            file.set_len(0)
                .and_then(|()| file.seek(SeekFrom::Start(0)))
                .and_then(|_| file.write_all(signature.as_bytes()))
                .map_err(Error::io(doing))?;
            return Ok(Some(Self { path, _file: file }));
        }
    }

    /// Gives the name back for good: there is no lab of that name any more.
    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The living process that owns a lab.
pub(crate) fn owner(place: &Place, name: &str) -> Option<ProcessId> {
    let mut text = String::new();
    File::open(lock_path(place, name)).ok()?.read_to_string(&mut text).ok()?;
    let mut words = text.split_whitespace();
    if words.next() != Some(Purpose::Own.word()) {
        return None;
    }
    let owner = ProcessId { pid: words.next()?.parse().ok()?, started: words.next()?.parse().ok()? };
    owner.is_alive().then_some(owner)
}

/// Whether a lab has a living owner.
pub fn has_owner(place: &Place, name: &str) -> bool {
    owner(place, name).is_some()
}
