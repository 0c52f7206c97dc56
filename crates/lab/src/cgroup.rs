//! Cgroups for kubelets: a folder of the lab's own in each hierarchy, recorded before it is made.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result, make_dir};
use crate::site::Site;

const ROOT: &str = "/sys/fs/cgroup";

/// Makes the cgroups of a node and returns their path within each hierarchy, as kubelet wants it.
pub(crate) fn create(site: &Site, machine: &str) -> Result<String> {
    let name = format!("ovnkube-lab.{}.{machine}", site.spec.name);
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
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_hierarchy(path) && !path.ends_with("unified"))
        .collect()
}

/// Removes a recorded cgroup and all below it. Its processes are gone already.
pub(crate) fn remove(folder: &Path) {
    let ours = folder.starts_with(ROOT)
        && folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ovnkube-lab."));
    if !ours {
        return;
    }
    if let Ok(entries) = std::fs::read_dir(folder) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            remove_below(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}

fn remove_below(folder: &Path) {
    if let Ok(entries) = std::fs::read_dir(folder) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            remove_below(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}
