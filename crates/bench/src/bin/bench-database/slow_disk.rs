//! A file system whose writes are slow: a loop device, throttled for the processes of one cgroup (v1 `blkio`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const CGROUPS: &str = "/sys/fs/cgroup/blkio";

/// A throttled loop device with a file system; removed on drop.
#[derive(Debug)]
pub(crate) struct SlowDisk {
    device: String,
    cgroup: PathBuf,
    image: PathBuf,
}

impl SlowDisk {
    /// A disk that takes this many writes per second from the processes of its cgroup.
    pub(crate) fn create(directory: &Path, writes: u32) -> Result<Self> {
        let throttle = Path::new(CGROUPS).join("blkio.throttle.write_iops_device");
        ensure!(throttle.exists(), "the kernel cannot throttle disks: there is no {}", throttle.display());
        let image = directory.join("slow-disk");
        std::fs::File::create(&image)?.set_len(256 << 20)?;
        let path = image.display().to_string();
        run(&["mkfs.ext4", "-q", "-F", &path])?;
        let device = run(&["losetup", "--find", "--show", &path])?.trim().to_owned();
        let cgroup = Path::new(CGROUPS).join(format!("ovnkube-bench-{}", std::process::id()));
        let disk = Self { device, cgroup, image };
        std::fs::create_dir_all(&disk.cgroup)?;
        let number = run(&["lsblk", "--noheadings", "--output", "MAJ:MIN", &disk.device])?.trim().to_owned();
        std::fs::write(disk.cgroup.join("blkio.throttle.write_iops_device"), format!("{number} {writes}"))
            .context("cannot throttle the loop device")?;
        Ok(disk)
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Throttles a process and what it starts from now on.
    pub(crate) fn throttle(&self, pid: u32) -> Result<()> {
        Ok(std::fs::write(self.cgroup.join("cgroup.procs"), pid.to_string())?)
    }

    /// Applies to what this thread writes from now on.
    pub(crate) fn throttle_this_thread(&self) -> Result<()> {
        Ok(std::fs::write(self.cgroup.join("tasks"), "0")?)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // After the last process has gone; a mounted device is detached when it is unmounted.
        let _ = run(&["losetup", "--detach", &self.device]);
        let _ = std::fs::remove_dir(&self.cgroup);
        let _ = std::fs::remove_file(&self.image);
    }
}

fn run(words: &[&str]) -> Result<String> {
    let (program, arguments) = words.split_first().context("no command")?;
    let output = Command::new(program).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
