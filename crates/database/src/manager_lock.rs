//! One manager for each server: a second one would take its control socket away, and two would restart each other's server.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::error::DatabaseError;

/// Held while a manager runs; the kernel releases it with the process.
#[derive(Debug)]
pub(crate) struct ManagerLock {
    _file: File,
}

impl ManagerLock {
    /// Creates the directory, and takes the lock in it. `server` is the name of the server's files, e.g. `ovnnb_db`.
    pub(crate) fn take(directory: &Path, server: &str) -> Result<Self, DatabaseError> {
        let failure = |error| DatabaseError::Directory(directory.to_owned(), error);
        std::fs::create_dir_all(directory).map_err(failure)?;
        let path = directory.join(format!("{server}.manager.lock"));
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| DatabaseError::Lock(path.clone(), error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(DatabaseError::AlreadyManaged(path)),
            Err(TryLockError::Error(error)) => Err(DatabaseError::Lock(path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_manager_is_refused_until_the_first_one_ended() {
        let directory = std::env::temp_dir().join(format!("manager-lock-{}", std::process::id()));
        let first = ManagerLock::take(&directory, "ovnnb_db").unwrap();
        let error = ManagerLock::take(&directory, "ovnnb_db").unwrap_err().to_string();
        assert!(error.contains("another manager") && error.contains("ovnnb_db.manager.lock"), "{error}");
        let other = ManagerLock::take(&directory, "ovnsb_db").unwrap();
        drop((first, other));
        ManagerLock::take(&directory, "ovnnb_db").unwrap();
        std::fs::remove_dir_all(directory).unwrap();
    }
}
