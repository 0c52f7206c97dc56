//! Cgroups for kubelets: a folder of the lab's own in each hierarchy, recorded before it is made.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result, make_dir};
use crate::place::Place;
use crate::site::Site;

const ROOT: &str = "/sys/fs/cgroup";

/// Makes the cgroups of a node and returns their path within each hierarchy, as kubelet wants it.
pub(crate) fn create(site: &Site, machine: &str) -> Result<String> {
    let name = format!("{}{machine}", prefix(&site.place, &site.spec.name));
    let folders: Vec<PathBuf> = hierarchies().into_iter().map(|hierarchy| hierarchy.join(&name)).collect();
    site.ledger.change(|record| record.cgroups.extend(folders.clone()))?;
    for folder in &folders {
        make_dir(folder)?;
        // A cpuset of version 1 takes no process before it has been told its processors.
        if let Some(parent) = folder.parent().filter(|parent| parent.ends_with("cpuset")) {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let value = crate::error::read_file(&parent.join(file))?;
                std::fs::write(folder.join(file), value)
                    .map_err(Error::io(format!("cannot set up {}", folder.display())))?;
            }
        }
    }
    Ok(format!("/{name}"))
}

/// How the cgroups of a lab begin. Labs of one name may run in two state folders.
fn prefix(place: &Place, lab: &str) -> String {
    let state = Sha256::digest(place.labs().as_os_str().as_encoded_bytes());
    format!("ovnkube-lab.{:02x}{:02x}{:02x}.{lab}.", state[0], state[1], state[2])
}

/// Removes every cgroup of a lab whose record is lost.
pub(crate) fn remove_all_of(place: &Place, lab: &str) {
    let prefix = prefix(place, lab);
    for hierarchy in hierarchies() {
        let Ok(entries) = std::fs::read_dir(hierarchy) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)) {
            remove(&entry.path());
        }
    }
}

/// Version 2 has one hierarchy, version 1 one for each controller.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    let is_hierarchy = |path: &PathBuf| path.join("cgroup.procs").exists() && !path.is_symlink();
    entries.flatten().map(|entry| entry.path()).filter(|path| is_hierarchy(path)).collect()
}

/// Removes a recorded cgroup and all below it. Its processes are gone already.
pub(crate) fn remove(folder: &Path) {
    let ours = folder.starts_with(ROOT)
        && folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ovnkube-lab."));
    if !ours {
        return;
    }
    // A cgroup is busy for a moment after its last process has gone; it has no event that all hierarchies know.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        remove_below(folder);
        if !folder.exists() || Instant::now() > deadline {
            return;
        }
        crate::process::wait_readable(&[], Instant::now() + Duration::from_millis(10));
    }
}

fn remove_below(folder: &Path) {
    if let Ok(entries) = std::fs::read_dir(folder) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            remove_below(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}
