//! Cgroups for kubelets: one directory per hierarchy and node, recorded before it is created.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::directories::Directories;
use crate::error::{Error, Result, create_dir};
use crate::supervisor::Supervisor;

const ROOT: &str = "/sys/fs/cgroup";

/// Creates the cgroups of a node and returns their path within each hierarchy, as kubelet expects it.
pub(crate) fn create(supervisor: &Supervisor, machine: &str) -> Result<String> {
    let name = format!("{}{machine}", prefix(&supervisor.directories, &supervisor.spec.name));
    let dirs: Vec<PathBuf> = hierarchies().into_iter().map(|hierarchy| hierarchy.join(&name)).collect();
    supervisor.record_file.change(|record| record.cgroups.extend(dirs.clone()))?;
    for dir in &dirs {
        create_dir(dir)?;
        // A cgroup v1 cpuset accepts no process until its CPUs and memory nodes are set.
        if let Some(parent) = dir.parent().filter(|parent| parent.ends_with("cpuset")) {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let value = crate::error::read_file(&parent.join(file))?;
                std::fs::write(dir.join(file), value).map_err(Error::io(format!("cannot set up {}", dir.display())))?;
            }
        }
    }
    Ok(format!("/{name}"))
}

/// The name prefix of a lab's cgroups. It depends on the state directory: two of them may have labs of the same name.
fn prefix(directories: &Directories, lab: &str) -> String {
    let state = Sha256::digest(directories.labs().as_os_str().as_encoded_bytes());
    format!("ovnkube-lab.{:02x}{:02x}{:02x}.{lab}.", state[0], state[1], state[2])
}

/// For a lab whose record is lost.
pub(crate) fn remove_all_of(directories: &Directories, lab: &str) {
    let prefix = prefix(directories, lab);
    for hierarchy in hierarchies() {
        let Ok(entries) = std::fs::read_dir(hierarchy) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)) {
            remove(&entry.path());
        }
    }
}

/// Cgroup v2 has one hierarchy, v1 one for each controller.
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

/// Removes a recorded cgroup and everything below it. Its processes have exited already.
pub(crate) fn remove(dir: &Path) {
    let ours =
        dir.starts_with(ROOT) && dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ovnkube-lab."));
    if !ours {
        return;
    }
    // A cgroup stays busy for a moment after its last process exits, and not every hierarchy has an event for that.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        remove_below(dir);
        if !dir.exists() || Instant::now() > deadline {
            return;
        }
        crate::process::wait_readable(&[], Instant::now() + Duration::from_millis(10));
    }
}

fn remove_below(dir: &Path) {
    if let Ok(entries) = std::fs::read_dir(dir) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            remove_below(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(dir);
}
