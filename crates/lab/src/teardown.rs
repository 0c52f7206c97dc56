//! Removes a lab, by its owner or, after a crash, by any process: everything that is needed is in the record.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::directories::Directories;
use crate::error::{Error, Result, remove_tree};
use crate::ownership::{Ownership, Purpose, has_owner, owner};
use crate::record::{Record, lab_names};

/// How long an owner may take to exit after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Removed {
    /// The lab was running; its owner got SIGTERM and exited.
    Stopped,
    /// The lab had crashed; its leftovers are removed.
    CleanedUp {
        /// Machines that still existed.
        machines: usize,
    },
}

/// Removes a lab: stops its owner if there is one, then removes what is left.
pub(crate) fn down(directories: &Directories, name: &str) -> Result<Removed> {
    let mut signalled = false;
    loop {
        if let Some(ownership) = Ownership::take(directories, name, Purpose::Remove)? {
            let left = directories.lab(name).exists();
            let machines = if left { clean_crashed(directories, name)? } else { 0 };
            ownership.delete_lock_file();
            return match (signalled, left) {
                (true, _) => Ok(Removed::Stopped),
                (false, true) => Ok(Removed::CleanedUp { machines }),
                (false, false) => Err(Error::NotRunning { name: name.to_owned() }),
            };
        }
        // The owner is known even without a readable record: the lock file has its pid.
        let Some(owner) = owner(directories, name) else { continue };
        if Record::load(directories, name).is_ok_and(|record| record.spec.ephemeral) {
            return Err(Error::Invalid(format!(
                "lab {name:?} belongs to a running test (pid {}), which removes it",
                owner.pid
            )));
        }
        signalled = true;
        if let Some(owner) = owner.open() {
            owner.signal(Signal::TERM);
            if !owner.wait(STOP_LIMIT) {
                owner.signal(Signal::KILL);
                if !owner.wait(STOP_LIMIT) {
                    return Err(Error::Invalid(format!("the owner of lab {name:?} survived SIGKILL")));
                }
            }
        }
    }
}

/// Removes labs of crashed tests.
pub(crate) fn sweep(directories: &Directories) {
    for name in lab_names(directories) {
        let ephemeral = || Record::load(directories, &name).is_ok_and(|record| record.spec.ephemeral);
        if has_owner(directories, &name) || !ephemeral() {
            continue;
        }
        let swept = Ownership::take(directories, &name, Purpose::Remove).and_then(|ownership| match ownership {
            // Checked again under the lock: another process may have been faster.
            Some(ownership) if ephemeral() => clean_crashed(directories, &name).map(|_| ownership.delete_lock_file()),
            _ => Ok(()),
        });
        if let Err(error) = swept {
            tracing::warn!(lab = name, %error, "cannot remove a crashed lab; the next lab that starts tries again");
        }
    }
    delete_unused_locks(directories);
}

/// Deletes lock files without a lab.
fn delete_unused_locks(directories: &Directories) {
    let Ok(entries) = std::fs::read_dir(directories.locks()) else { return };
    for entry in entries.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".lock") else { continue };
        if has_owner(directories, name) || directories.lab(name).exists() {
            continue;
        }
        if let Ok(Some(ownership)) = Ownership::take(directories, name, Purpose::Remove)
            && !directories.lab(name).exists()
        {
            ownership.delete_lock_file();
        }
    }
}

/// Removes what is left of a lab whose owner is gone; the caller holds its lock. Returns the number of machines that
/// still existed.
pub(crate) fn clean_crashed(directories: &Directories, name: &str) -> Result<usize> {
    let dir = directories.lab(name);
    match Record::load(directories, name) {
        Ok(record) => {
            let machines = kill_machines(&record);
            clean(&dir, &record)?;
            Ok(machines)
        }
        Err(_) => {
            // The machines stopped with their owner. The cgroups are found by the lab's name.
            crate::cgroup::remove_all_of(directories, name);
            remove_tree(&dir)?;
            Ok(0)
        }
    }
}

/// Kills machines that still exist; usually they stopped with their owner.
fn kill_machines(record: &Record) -> usize {
    let handles: Vec<_> = record.machines.iter().filter_map(|machine| machine.init.open()).collect();
    for handle in &handles {
        handle.signal(Signal::KILL);
    }
    for handle in &handles {
        handle.wait(Duration::from_secs(30));
    }
    handles.len()
}

/// Removes cgroups and the directory. Everything else ended with the machines' first processes.
pub(crate) fn clean(dir: &Path, record: &Record) -> Result<()> {
    for cgroup in &record.cgroups {
        crate::cgroup::remove(cgroup);
    }
    remove_tree(dir)
}
