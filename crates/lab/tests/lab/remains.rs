//! Checks that nothing is left of a lab, according to the kernel and not to the lab.

use std::path::{Path, PathBuf};

use lab::record::Record;

/// Everything on this host that still refers to the lab's directory or cgroups.
pub(crate) fn of(record: &Record, dir: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let text = dir.display().to_string();
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
    if dir.exists() {
        left.push(format!("directory {text}"));
    }
    left
}

/// Every cgroup with the lab's name, in any hierarchy, recorded or not.
pub(crate) fn cgroups_of(lab: &str) -> Vec<PathBuf> {
    let dirs = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect()
    };
    let root = Path::new("/sys/fs/cgroup");
    let mut all = dirs(root);
    all.extend(dirs(root).iter().flat_map(|hierarchy| dirs(hierarchy)));
    all.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(&format!(".{lab}."))));
    all
}

/// Waits until nothing is left, for labs that are removed in the background.
pub(crate) fn await_none(record: &Record, dir: &Path) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let left = of(record, dir);
        if left.is_empty() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{left:?}");
    }
}

pub(crate) fn dir(name: &str) -> PathBuf {
    lab::directories::Directories::from_environment().unwrap().lab(name)
}
