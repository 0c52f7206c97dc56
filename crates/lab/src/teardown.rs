//! Removing what a lab made, by its owner or, after a crash, by anyone: from the record alone.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::place::Place;
use crate::record::{Record, await_owner_end, has_owner, lab_names};

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
    let record = match Record::load(place, name) {
        Ok(record) => record,
        Err(error @ Error::NotRunning { .. }) if !place.lab(name).exists() => return Err(error),
        // Without a readable record there is nothing to go by but the folder, which nobody owns.
        Err(_) if !has_owner(place, name) => {
            remove_folder(&place.lab(name))?;
            return Ok(Removed::CleanedUp { machines: 0 });
        }
        Err(error) => return Err(error),
    };
    if has_owner(place, name) {
        if record.spec.ephemeral {
            return Err(Error::Invalid(format!(
                "lab {name:?} belongs to a test that still runs (pid {}); it ends with it",
                record.owner.pid
            )));
        }
        if let Some(owner) = record.owner.open() {
            owner.signal(Signal::TERM);
            if !owner.wait(Duration::from_secs(60)) {
                owner.signal(Signal::KILL);
            }
        }
        await_owner_end(place, name);
        if !place.lab(name).exists() {
            return Ok(Removed::Stopped);
        }
    }
    let machines = end_machines(&record);
    clean(&place.lab(name), &record)?;
    Ok(Removed::CleanedUp { machines })
}

/// Sweeps away what crashed tests left.
pub(crate) fn sweep(place: &Place) {
    for name in lab_names(place) {
        let crashed = !has_owner(place, &name) && Record::load(place, &name).is_ok_and(|record| record.spec.ephemeral);
        if crashed && let Err(error) = down(place, &name) {
            tracing::warn!(lab = name, %error, "cannot sweep away a crashed lab");
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
    remove_folder(folder)
}

fn remove_folder(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Io { doing: format!("cannot remove {}", folder.display()), source: error })
        }
        _ => Ok(()),
    }
}
