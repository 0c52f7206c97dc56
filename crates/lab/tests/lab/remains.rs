//! What is left of a lab: nothing. Asked of the kernel, not of the lab.

use std::path::{Path, PathBuf};

use lab::record::Record;

/// Everything on this machine that still names the lab's folder or cgroups.
pub(crate) fn of(record: &Record, folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let text = folder.display().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let read = |file: &str| {
            std::fs::read(entry.path().join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        if pid != std::process::id() && read("mountinfo").is_ok_and(|mounts| mounts.contains(&text)) {
            left.push(format!("process {pid} ({}) has the lab's mounts", read("comm").unwrap_or_default().trim()));
        }
    }
    left.extend(
        record
            .components
            .iter()
            .filter(|component| component.process.is_alive())
            .map(|component| format!("component {}", component.name)),
    );
    left.extend(
        record
            .machines
            .iter()
            .filter(|machine| machine.init.is_alive())
            .map(|machine| format!("machine {}", machine.name)),
    );
    left.extend(cgroups_of(&record.name).iter().map(|cgroup| format!("cgroup {}", cgroup.display())));
    if folder.exists() {
        left.push(format!("folder {text}"));
    }
    left
}

/// Every cgroup that bears the lab's name, in whatever hierarchy, recorded or not.
pub(crate) fn cgroups_of(lab: &str) -> Vec<PathBuf> {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect()
    };
    let root = Path::new("/sys/fs/cgroup");
    let mut all = folders(root);
    all.extend(folders(root).iter().flat_map(|hierarchy| folders(hierarchy)));
    all.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(&format!(".{lab}."))));
    all
}

/// Waits until there is nothing left, for what ends by itself.
pub(crate) fn await_none(record: &Record, folder: &Path) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let left = of(record, folder);
        if left.is_empty() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{left:?}");
    }
}

pub(crate) fn folder(name: &str) -> PathBuf {
    lab::place::Place::from_environment().unwrap().lab(name)
}
