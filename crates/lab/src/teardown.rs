//! Removing what a lab made, by its owner or, after a crash, by anyone: from the record alone.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Error, Result, remove_tree};
use crate::ownership::{Ownership, Purpose, has_owner, owner};
use crate::place::Place;
use crate::record::{Record, lab_names};

/// How long an owner may take to end in order.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// The lab ran; its owner was told to end and did.
    Stopped,
    /// Its owner had died; what was left is gone now.
    CleanedUp {
        /// Machines whose processes were still there.
        machines: usize,
    },
}

/// Removes a lab: tells its owner to stop if it has one, and removes whatever is left.
pub fn down(place: &Place, name: &str) -> Result<Removed> {
    let mut told = false;
    loop {
        if let Some(ownership) = Ownership::take(place, name, Purpose::Remove)? {
            let left = place.lab(name).exists();
            let machines = if left { clean_crashed(place, name)? } else { 0 };
            ownership.forget();
            return match (told, left) {
                (true, _) => Ok(Removed::Stopped),
                (false, true) => Ok(Removed::CleanedUp { machines }),
                (false, false) => Err(Error::NotRunning { name: name.to_owned() }),
            };
        }
        // Also without a readable record the owner is known: it signed the name.
        let Some(owner) = owner(place, name) else { continue };
        if Record::load(place, name).is_ok_and(|record| record.spec.ephemeral) {
            return Err(Error::Invalid(format!(
                "lab {name:?} belongs to a test that still runs (pid {}); it ends with it",
                owner.pid
            )));
        }
        told = true;
        if let Some(owner) = owner.open() {
            owner.signal(Signal::TERM);
            if !owner.wait(STOP_LIMIT) {
                owner.signal(Signal::KILL);
                if !owner.wait(STOP_LIMIT) {
                    return Err(Error::Invalid(format!(
                        "the owner of lab {name:?} does not end, though it was killed"
                    )));
                }
            }
        }
    }
}

/// Sweeps away what crashed tests left.
pub(crate) fn sweep(place: &Place) {
    for name in lab_names(place) {
        let ephemeral = || Record::load(place, &name).is_ok_and(|record| record.spec.ephemeral);
        if has_owner(place, &name) || !ephemeral() {
            continue;
        }
        let swept = Ownership::take(place, &name, Purpose::Remove).and_then(|ownership| match ownership {
            // Looked at again under the lock: somebody may have been quicker.
            Some(ownership) if ephemeral() => clean_crashed(place, &name).map(|_| ownership.forget()),
            _ => Ok(()),
        });
        if let Err(error) = swept {
            tracing::warn!(lab = name, %error, "cannot sweep away a crashed lab");
        }
    }
    forget_unused_names(place);
}

/// Names that were given up with nothing left of their labs.
fn forget_unused_names(place: &Place) {
    let Ok(entries) = std::fs::read_dir(place.locks()) else { return };
    for entry in entries.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".lock") else { continue };
        if has_owner(place, name) || place.lab(name).exists() {
            continue;
        }
        if let Ok(Some(ownership)) = Ownership::take(place, name, Purpose::Remove)
            && !place.lab(name).exists()
        {
            ownership.forget();
        }
    }
}

/// Removes what is left of a lab whose owner is gone; the caller holds its name. Returns the machines still there.
pub(crate) fn clean_crashed(place: &Place, name: &str) -> Result<usize> {
    let folder = place.lab(name);
    match Record::load(place, name) {
        Ok(record) => {
            let machines = end_machines(&record);
            clean(&folder, &record)?;
            Ok(machines)
        }
        Err(_) => {
            // The machines ended with their owner. Cgroups are known by the lab's name.
            crate::cgroup::remove_all_of(place, name);
            remove_tree(&folder)?;
            Ok(0)
        }
    }
}

/// Ends machines that are still there; their leash has usually done so already.
fn end_machines(record: &Record) -> usize {
    let handles: Vec<_> = record.machines.iter().filter_map(|machine| machine.init.open()).collect();
    for handle in &handles {
        handle.signal(Signal::KILL);
    }
    for handle in &handles {
        handle.wait(Duration::from_secs(30));
    }
    handles.len()
}

/// Removes cgroups and the folder. Everything else ended with the machines' first processes.
pub(crate) fn clean(folder: &Path, record: &Record) -> Result<()> {
    for cgroup in &record.cgroups {
        crate::cgroup::remove(cgroup);
    }
    remove_tree(folder)
}
